// A process of two threads stops itself: by its own id, by a thread's, by its group, by one thread's signal to the other, by letting in what
// was blocked, in a call that waits and by the mask. Its parent, and another child, go on meanwhile.
#include "guest.h"
#include <sys/wait.h>

enum { BY_ID, BY_THREAD, BY_GROUP, BY_GROUP_ID, BY_TGKILL, BY_PIDFD, BY_QUEUE, BY_UNBLOCK, BY_SIGSUSPEND, BY_RAISE, WAYS };
static int way;
static pid_t main_thread;

static void *stopper(void *unused) {
    (void)unused;
    sigset_t one, none;
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    siginfo_t info = {.si_signo = SIGTSTP, .si_code = SI_QUEUE};
    switch (way) {
    case BY_ID: must(kill(getpid(), SIGSTOP)); break;
    case BY_THREAD: must(kill(gettid_raw(), SIGSTOP)); break;
    case BY_GROUP: must(kill(0, SIGTSTP)); break;
    case BY_GROUP_ID: must(kill(-getpgrp(), SIGTTIN)); break;
    case BY_TGKILL: must(syscall(SYS_tgkill, getpid(), main_thread, SIGSTOP)); break;
    case BY_PIDFD: {
        int fd = must(syscall(SYS_pidfd_open, getpid(), 0));
        must(syscall(SYS_pidfd_send_signal, fd, SIGTTOU, NULL, 0));
        break;
    }
    case BY_QUEUE: must(syscall(SYS_rt_sigqueueinfo, getpid(), SIGTSTP, &info)); break;
    case BY_UNBLOCK:
        must(syscall(SYS_tgkill, getpid(), gettid_raw(), SIGTSTP));
        ok(pthread_sigmask(SIG_UNBLOCK, &one, NULL));
        break;
    case BY_SIGSUSPEND:
        // It stops in there, and waits on; the other signal ends that.
        must(syscall(SYS_tgkill, getpid(), gettid_raw(), SIGTSTP));
        must(syscall(SYS_tgkill, getpid(), gettid_raw(), SIGUSR1));
        fails(EINTR, sigsuspend(&none));
        break;
    case BY_RAISE: must(raise(SIGTSTP)); break;
    }
    return NULL;
}

static void caught(int signal) {
    expect(signal == SIGUSR1);
}

static pid_t stopping_child(void) {
    pid_t pid = must(fork());
    if (pid != 0) return pid;
    must(setpgid(0, 0));
    main_thread = getpid();
    expect(signal(SIGUSR1, caught) != SIG_ERR);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    if (way == BY_UNBLOCK || way == BY_SIGSUSPEND) sigaddset(&blocked, SIGTSTP);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL));
    finish(start(stopper, NULL));
    _exit(3);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 3);
    for (way = 0; way < WAYS; way++) {
        for (long i = 0; i < rounds; i++) {
            int status;
            pid_t pid = stopping_child();
            expect(must(waitpid(pid, &status, WUNTRACED)) == pid);
            expect(WIFSTOPPED(status));
            // Nobody else is kept from going on.
            pid_t other = must(fork());
            if (other == 0) _exit(5);
            int ended;
            expect(must(waitpid(other, &ended, 0)) == other && ended == 5 << 8);
            must(kill(pid, SIGCONT));
            expect(must(waitpid(pid, &status, 0)) == pid && status == 3 << 8);
        }
        say("way %d\n", way);
    }
}
