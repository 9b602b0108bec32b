// PR_SET_PDEATHSIG: a signal at the end of the parent, or rather of the thread that forked; what clears the wish and what keeps it.
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static int ready[2], told[2];
static sigset_t wanted;

static void inform(int fd) { expect(write(fd, "x", 1) == 1); }
static void hear(int fd) {
    char c;
    expect(read(fd, &c, 1) == 1);
}

// Asks for a signal, says so, and waits for it.
__attribute__((noreturn)) static void orphan(int number, pid_t parent) {
    must(prctl(PR_SET_PDEATHSIG, number));
    // The parent may be gone already; that is what careful programs ask.
    expect(getppid() == parent);
    inform(ready[1]);
    siginfo_t info;
    expect(must(sigwaitinfo(&wanted, &info)) == number);
    expect(info.si_code == SI_USER && info.si_pid == parent);
    inform(told[1]);
    _exit(0);
}

static void *forks_and_ends(void *p) {
    pid_t me = getpid(), pid = must(fork());
    if (pid == 0) orphan(SIGUSR2, me);
    *(pid_t *)p = pid;
    hear(ready[0]);
    return NULL;
}

int main(int argc, char **argv) {
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, SIGUSR2);
    if (argc > 1) {
        // After an exec: the wish is still there.
        int value = 0;
        must(prctl(PR_GET_PDEATHSIG, &value));
        ready[1] = atoi(argv[1]);
        told[1] = atoi(argv[2]);
        orphan(value, atoi(argv[3]));
    }
    must(pipe(ready));
    must(pipe(told));
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    ok(pthread_sigmask(SIG_BLOCK, &wanted, NULL));
    fails(EINVAL, prctl(PR_SET_PDEATHSIG, 65));

    // A parent ends.
    pid_t parent = must(fork());
    if (parent == 0) {
        pid_t me = getpid();
        if (must(fork()) == 0) orphan(SIGUSR1, me);
        hear(ready[0]);
        _exit(0);
    }
    hear(told[0]);
    for (int i = 0; i < 2; i++) must(wait(NULL));
    say("a parent's end\n");

    // A fork clears the wish, an exec keeps it.
    parent = must(fork());
    if (parent == 0) {
        pid_t me = getpid();
        must(prctl(PR_SET_PDEATHSIG, SIGUSR1));
        if (must(fork()) == 0) {
            int value = 77;
            must(prctl(PR_GET_PDEATHSIG, &value));
            expect(value == 0);
            must(prctl(PR_SET_PDEATHSIG, SIGUSR2));
            char a[12], b[12], c[12];
            snprintf(a, sizeof a, "%d", ready[1]);
            snprintf(b, sizeof b, "%d", told[1]);
            snprintf(c, sizeof c, "%d", me);
            execl("/proc/self/exe", argv[0], a, b, c, NULL);
            _exit(GUEST_FAILED);
        }
        hear(ready[0]);
        _exit(0);
    }
    hear(told[0]);
    for (int i = 0; i < 2; i++) {
        int status;
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    say("after an exec\n");

    // The end of the thread that forked counts, though its process lives on.
    pid_t pid;
    finish(start(forks_and_ends, &pid));
    hear(told[0]);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    say("a thread's end\n");
    // A signal that kills.
    parent = must(fork());
    if (parent == 0) {
        pid = must(fork());
        if (pid == 0) {
            must(prctl(PR_SET_PDEATHSIG, SIGKILL));
            inform(ready[1]);
            for (;;) pause();
        }
        hear(ready[0]);
        raise(SIGKILL);
    }
    int killed = 0;
    for (int i = 0; i < 2; i++) {
        must(wait(&status));
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    expect(killed == 2);
    say("killed with its parent\n");
}
