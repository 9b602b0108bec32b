// Children that die of signals: their own faults, abort, kill by the parent, in every state.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static int reap(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    return status;
}

static volatile int children;
static void on_child(int signal) {
    (void)signal;
    children++;
}

int main(void) {
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none));
    pid_t pid = must(fork());
    if (pid == 0) *(volatile int *)16 = 1;
    int status = reap(pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    pid = must(fork());
    if (pid == 0) abort();
    status = reap(pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    pid = must(fork());
    if (pid == 0) {
        raise(SIGTERM);
        _exit(1);
    }
    status = reap(pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    say("three ended themselves\n");

    // Asleep in a call.
    int ready[2];
    must(pipe(ready));
    for (int i = 0; i < 2; i++) {
        pid = must(fork());
        if (pid == 0) {
            expect(write(ready[1], "x", 1) == 1);
            for (;;) pause();
        }
        char c;
        expect(read(ready[0], &c, 1) == 1);
        must(kill(pid, i ? SIGKILL : SIGTERM));
        status = reap(pid);
        expect(WIFSIGNALED(status) && WTERMSIG(status) == (i ? SIGKILL : SIGTERM));
    }
    // In the middle of a computation without any call.
    for (int i = 0; i < 2; i++) {
        pid = must(fork());
        if (pid == 0) {
            expect(write(ready[1], "x", 1) == 1);
            for (;;) burn(1000);
        }
        char c;
        expect(read(ready[0], &c, 1) == 1);
        must(kill(pid, i ? SIGKILL : SIGUSR1));
        status = reap(pid);
        expect(WIFSIGNALED(status) && WTERMSIG(status) == (i ? SIGKILL : SIGUSR1));
    }
    say("four were killed\n");

    // A handler for SIGCHLD, and children that end one by one.
    struct sigaction action = {.sa_handler = on_child};
    must(sigaction(SIGCHLD, &action, NULL));
    for (int i = 0; i < 5; i++) {
        int before = children;
        sigset_t chld, old;
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        must(sigprocmask(SIG_BLOCK, &chld, &old));
        pid = must(fork());
        if (pid == 0) _exit(i);
        while (children == before) sigsuspend(&old);
        must(sigprocmask(SIG_SETMASK, &old, NULL));
        status = reap(pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == i);
    }
    say("%d children told of their end\n", children);

    // A handler in the child, called by the parent, and back.
    must(pipe(ready));
    pid = must(fork());
    if (pid == 0) {
        children = 0;
        must(sigaction(SIGUSR2, &action, NULL));
        expect(write(ready[1], "x", 1) == 1);
        while (!children) usleep(100);
        _exit(42);
    }
    char c;
    expect(read(ready[0], &c, 1) == 1);
    must(kill(pid, SIGUSR2));
    for (;;) {
        pid_t done = waitpid(pid, &status, 0);
        if (done == pid) break;
        expect(done < 0 && errno == EINTR);
    }
    expect(WEXITSTATUS(status) == 42);
    // Nobody wants to know.
    signal(SIGCHLD, SIG_IGN);
    pid = must(fork());
    if (pid == 0) _exit(0);
    fails(ECHILD, waitpid(pid, &status, 0));
    say("done\n");
}
