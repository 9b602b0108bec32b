// A signal that comes late in a loop of a few instructions, which makes no call: no place in it is near the gate before.
// flags: -O2 -g
// run: 400
#include "guest.h"

static volatile sig_atomic_t seen;
static volatile uint64_t rounds[64], round_number;

static void on_signal(int number) {
    (void)number;
    seen = 1;
}

int main(int argc, char **argv) {
    long milliseconds = number(argc, argv, 1, 400);
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, NULL));
    struct itimerval once = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000}};
    must(setitimer(ITIMER_REAL, &once, NULL));
    while (!seen) {
        rounds[round_number & 63] += round_number;
        round_number++;
    }
    say("round %lu\n", round_number);
}
