// A handler that must run while the program computes without a single system call; the loop says how far it had come each time.
// variant: O0 -O0
// variant: O2 -O2
// variant: static -static
// run: 5
#include "guest.h"

static volatile sig_atomic_t ticks;
static volatile uintptr_t where;
static uint64_t progress;

static void handler(int number, siginfo_t *info, void *context) {
    (void)info;
    expect(number == SIGALRM);
    where = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    ticks++;
}

int main(int argc, char **argv) {
    long wanted = number(argc, argv, 1, 5);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerval every = {.it_interval.tv_usec = 5000, .it_value.tv_usec = 5000};
    must(setitimer(ITIMER_REAL, &every, NULL));
    uint64_t seen[64] = {0}, x = 1;
    long got = 0;
    while (got < wanted) {
        progress++;
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (ticks != got) seen[got++] = progress;
    }
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, &every));
    expect(where > (uintptr_t)main - 0x100000 || where != 0);
    for (long i = 0; i < wanted; i++) say("tick at round %lu\n", seen[i]);
    say("state %lu\n", x);
}
