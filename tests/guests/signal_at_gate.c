// Signals that a program sends to itself arrive when the call that sent them returns, with all that siginfo says.
// variant: static -static
#include "guest.h"

static volatile int count, last, code;
static volatile pid_t sender;
static volatile int value;

static void handler(int number, siginfo_t *info, void *context) {
    expect(context != NULL && info->si_signo == number);
    count++;
    last = number;
    code = info->si_code;
    sender = info->si_pid;
    value = info->si_value.sival_int;
}

static void plain(int number) {
    count += 100;
    last = number;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) must(sigaction(s, &action, &old));
    must(kill(getpid(), SIGUSR1));
    expect(count == 1 && last == SIGUSR1 && code == SI_USER && sender == getpid());
    expect(raise(SIGUSR2) == 0);
    expect(count == 2 && last == SIGUSR2 && code == SI_TKILL);
    must(sigqueue(getpid(), SIGTERM, (union sigval){.sival_int = 1234}));
    expect(count == 3 && last == SIGTERM && code == SI_QUEUE && value == 1234);
    for (int s = 1; s < 32; s++) {
        if (s == SIGKILL || s == SIGSTOP) continue;
        int before = count;
        expect(raise(s) == 0);
        expect(count == before + 1 && last == s);
    }
    action = (struct sigaction){.sa_handler = plain, .sa_flags = (int)SA_RESETHAND};
    must(sigaction(SIGUSR1, &action, &old));
    expect(old.sa_sigaction == handler && (old.sa_flags & SA_SIGINFO));
    expect(raise(SIGUSR1) == 0 && count == 133 - 1);
    must(sigaction(SIGUSR1, NULL, &old));
    expect(old.sa_handler == SIG_DFL);
    signal(SIGUSR1, SIG_IGN);
    expect(raise(SIGUSR1) == 0 && count == 132);
    signal(SIGUSR1, plain);
    for (int i = 0; i < 1000; i++) expect(raise(SIGUSR1) == 0);
    expect(count == 100132);
    // Signals that do nothing by default.
    signal(SIGCHLD, SIG_DFL), signal(SIGURG, SIG_DFL), signal(SIGWINCH, SIG_DFL);
    raise(SIGCHLD), raise(SIGURG), raise(SIGWINCH);
    fails(EINVAL, sigaction(SIGKILL, &action, NULL));
    fails(EINVAL, sigaction(65, &action, NULL));
    say("%d handled, pid %d\n", count, sender);
}
