// Handlers inside handlers: another signal, the same one with SA_NODEFER, and an alarm on top of all.
// run: 200
#include "guest.h"

static volatile int depth, deepest, usr1, usr2, alarms;

static void on_usr2(int number) {
    (void)number;
    usr2++;
    if (++depth > deepest) deepest = depth;
    burn(2000);
    depth--;
}

static void on_usr1(int number) {
    usr1++;
    if (++depth > deepest) deepest = depth;
    if (depth < 5) raise(number);
    raise(SIGUSR2);
    depth--;
}

static void on_alarm(int number) {
    (void)number;
    alarms++;
    burn(1000);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 200);
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_usr1, .sa_flags = SA_NODEFER}, NULL));
    must(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_usr2}, NULL));
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL));
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 1000}, {.tv_usec = 1000}}, NULL));
    for (long i = 0; i < rounds; i++) {
        raise(SIGUSR1);
        burn(20000);
    }
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    expect(usr1 == 5 * rounds && usr2 == 5 * rounds && deepest == 6 && depth == 0);
    say("%d alarms\n", alarms);
}
