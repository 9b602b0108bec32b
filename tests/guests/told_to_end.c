// A program that is told to end, and says by which signals: one line for each that arrives. SIGTERM ends it.
//
// Without an argument it waits for signals from elsewhere; with one it sends them itself.
// run: itself
#include "guest.h"

static const struct {
    int signal;
    const char *name;
} signals[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
               {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGTERM, "SIGTERM"}};

int main(int argc, char **argv GUEST_UNUSED) {
    const size_t count = sizeof signals / sizeof *signals;
    sigset_t all;
    sigemptyset(&all);
    for (size_t i = 0; i < count; i++) sigaddset(&all, signals[i].signal);
    must(sigprocmask(SIG_BLOCK, &all, NULL));
    say("ready\n");
    for (size_t n = 0;; n++) {
        if (argc > 1) must(kill(getpid(), signals[n % count].signal));
        siginfo_t info;
        int got = must(sigwaitinfo(&all, &info));
        for (size_t i = 0; i < count; i++)
            if (signals[i].signal == got) say("%s\n", signals[i].name);
        if (got == SIGTERM) return 0;
    }
}
