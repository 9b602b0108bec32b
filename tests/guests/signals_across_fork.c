// What a forked child has of its parent's signals: handlers, mask, other stack; not what waits, not the timers.
#include "guest.h"
#include <sys/wait.h>

static volatile sig_atomic_t calls;
static volatile char *where;
static void handler(int number) {
    (void)number;
    char here;
    where = &here;
    calls++;
}

static volatile pid_t inner = -1;
static void forks(int number) {
    handler(number);
    inner = fork();
}

int main(void) {
    char *memory = malloc(65536);
    must(sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = 65536}, NULL));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGRTMIN, &action, NULL));
    must(sigaction(SIGALRM, &action, NULL));
    signal(SIGUSR2, SIG_IGN);
    sigset_t set, pending, empty;
    sigemptyset(&empty);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    must(raise(SIGUSR1));
    for (int i = 0; i < 5; i++) must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
    must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = 1000}}, NULL));
    timer_t timer;
    must(timer_create(CLOCK_MONOTONIC, NULL, &timer));
    pid_t pid = must(fork());
    if (pid == 0) {
        must(sigpending(&pending));
        expect(!sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGRTMIN));
        ok(pthread_sigmask(SIG_BLOCK, NULL, &set));
        expect(sigismember(&set, SIGUSR1) && sigismember(&set, SIGRTMIN) && !sigismember(&set, SIGUSR2));
        struct itimerval left;
        must(getitimer(ITIMER_REAL, &left));
        expect(left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
        struct itimerspec spec;
        fails(EINVAL, timer_gettime(timer, &spec));
        stack_t stack;
        must(sigaltstack(NULL, &stack));
        expect(stack.ss_sp == memory && stack.ss_size == 65536 && stack.ss_flags == 0);
        must(sigaction(SIGUSR2, NULL, &action));
        expect(action.sa_handler == SIG_IGN);
        ok(pthread_sigmask(SIG_SETMASK, &empty, NULL));
        expect(calls == 0);
        must(raise(SIGUSR1));
        expect(calls == 1 && where > memory && where < memory + 65536);
        // Changes stay here.
        signal(SIGUSR1, SIG_IGN);
        _exit(0);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must(sigaction(SIGUSR1, NULL, &action));
    expect(action.sa_handler == handler && calls == 0);
    // What waited for us still does.
    ok(pthread_sigmask(SIG_SETMASK, &empty, NULL));
    expect(calls == 6);
    struct itimerval left;
    must(getitimer(ITIMER_REAL, &left));
    expect(left.it_value.tv_sec > 900);
    // A fork inside a handler: the child returns from it, too, to where the signal came.
    action.sa_handler = forks;
    must(sigaction(SIGUSR1, &action, NULL));
    for (int round = 0; round < 3; round++) {
        must(raise(SIGUSR1));
        if (inner == 0) _exit(round + calls);
        expect(must(waitpid(inner, &status, 0)) == inner && WEXITSTATUS(status) == round + calls);
    }
    say("%d calls\n", (int)calls);
}
