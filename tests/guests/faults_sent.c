// Signals by which the kernel reports faults, sent by kill(2) while they are blocked: they wait, and are let in by a mask, by a call that waits
// under another one, are taken by sigwait(3), or end the process (the last two unless the argument is 0: not under every engine).
// run: 0
#include "guest.h"
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGUSR1};
static volatile sig_atomic_t caught_signal;

static void caught(int signal) {
    caught_signal = signal;
}

static void by_default(int signal, int way) {
    pid_t pid = must(fork());
    if (pid == 0) {
        struct rlimit none = {0, 0};
        must(setrlimit(RLIMIT_CORE, &none));
        sigset_t one, before;
        sigemptyset(&one);
        sigaddset(&one, signal);
        must(sigprocmask(SIG_BLOCK, &one, &before));
        must(kill(getpid(), signal));
        sigset_t waits;
        must(sigpending(&waits));
        expect(sigismember(&waits, signal));
        if (way == 0) sigsuspend(&before);
        if (way == 1) must(sigprocmask(SIG_SETMASK, &before, NULL));
        if (way == 2) ppoll(NULL, 0, NULL, &before);
        _exit(GUEST_FAILED);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == signal);
}

static void handled(int signal, bool takes) {
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, signal);
    struct sigaction action = {.sa_handler = caught}, old;
    must(sigaction(signal, &action, &old));
    for (int way = 0; way < 4; way++) {
        if (way == 2 && !takes) continue;
        must(sigprocmask(SIG_BLOCK, &one, &before));
        must(way % 2 ? kill(getpid(), signal) : raise(signal));
        caught_signal = 0;
        siginfo_t info = {0};
        struct timespec soon = {5, 0};
        switch (way) {
        case 0: fails(EINTR, sigsuspend(&before)); break;
        case 1: fails(EINTR, ppoll(NULL, 0, NULL, &before)); break;
        case 2: expect(must(sigtimedwait(&one, &info, &soon)) == signal && info.si_signo == signal && info.si_pid == getpid()); break;
        case 3: break;
        }
        expect(caught_signal == (way < 2 ? signal : 0));
        must(sigprocmask(SIG_SETMASK, &before, NULL));
        expect(caught_signal == (way == 2 ? 0 : signal));
    }
    must(sigaction(signal, &old, NULL));
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        bool all = number(argc, argv, 1, 1) != 0;
        handled(SIGNALS[i], all);
        for (int way = 0; way < 3 && all; way++) by_default(SIGNALS[i], way);
        say("signal %d\n", SIGNALS[i]);
    }
}
