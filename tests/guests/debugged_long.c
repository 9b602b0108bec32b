// Computes for some seconds between calls, for a debugger that is to be interrupted.
#include "guest.h"
#include <sys/syscall.h>

volatile long sum;

__attribute__((noinline)) void never(void) {
    sum = -1;
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 20000, steps = argc > 2 ? atol(argv[2]) : 100000;
    for (long i = 0; i < calls; i++) {
        syscall(SYS_getppid);
        for (long j = 0; j < steps; j++) sum += j;
    }
    if (sum == 42) never();
    say("over\n");
    return 0;
}
