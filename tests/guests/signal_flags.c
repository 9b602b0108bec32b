// What a handler's flags mean: SA_RESETHAND, SA_NODEFER, SA_SIGINFO and the handler's own mask.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
static int depth, deepest, calls;

static void resets(int number) {
    struct sigaction now;
    must(sigaction(number, NULL, &now));
    expect(now.sa_handler == SIG_DFL);
    calls++;
}

static void nests(int number) {
    depth++;
    calls++;
    if (depth > deepest) deepest = depth;
    if (calls < 5) raise(number);
    depth--;
}

static void masked(int number, siginfo_t *info, void *context) {
    (void)context;
    sigset_t now;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
    say("in %d: usr1 %d usr2 %d hup %d, code %d\n", number, sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2),
        sigismember(&now, SIGHUP), info->si_code);
}

int main(void) {
    struct sigaction action = {.sa_handler = resets, .sa_flags = SA_RESETHAND};
    must(sigaction(SIGUSR1, &action, NULL));
    must(raise(SIGUSR1));
    action = (struct sigaction){.sa_handler = nests, .sa_flags = SA_NODEFER};
    calls = 0;
    must(sigaction(SIGUSR1, &action, NULL));
    must(raise(SIGUSR1));
    say("nested %d deep in %d calls\n", deepest, calls);
    calls = depth = deepest = 0;
    action.sa_flags = 0;
    must(sigaction(SIGUSR1, &action, NULL));
    must(raise(SIGUSR1));
    say("one after the other %d deep in %d calls\n", deepest, calls);
    action = (struct sigaction){.sa_sigaction = masked, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGHUP);
    must(sigaction(SIGUSR2, &action, NULL));
    must(raise(SIGUSR2));
    must(kill(getpid(), SIGUSR2));
    sigset_t now;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
    say("after: usr2 %d hup %d\n", sigismember(&now, SIGUSR2), sigismember(&now, SIGHUP));
    tell(sigaction(SIGKILL, &action, NULL));
    tell(sigaction(SIGSTOP, &action, NULL));
    tell(sigaction(65, &action, NULL));
    tell(sigaction(0, &action, NULL));
    tell(sigaction(SIGKILL, NULL, &action));
    tell(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
    tell(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8));
    tell(syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8));
    tell(syscall(SYS_rt_sigprocmask, 77, &now, NULL, 8));
}
