// Computes for some seconds of its processor's time, with calls in between, for a debugger that is to be interrupted.
#include "guest.h"

volatile long sum;

__attribute__((noinline)) void never(void) {
    sum = -1;
}

static long seconds(void) {
    struct timespec now;
    must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
    return now.tv_sec;
}

int main(int argc, char **argv) {
    long end = argc > 1 ? atol(argv[1]) : 3;
    while (seconds() < end) {
        for (long i = 0; i < 100000; i++) sum += i;
    }
    if (sum == 42) never();
    say("over\n");
    return 0;
}
