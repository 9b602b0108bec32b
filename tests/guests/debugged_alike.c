// A function is called again and again, each time with the same general registers: only memory tells the calls apart.
// flags: -O2 -g
#include "guest.h"

static volatile double passed;

static __attribute__((noinline)) void here(void) {
    __asm__ volatile(".rept 40\n nop\n .endr");
}

int main(int argc, char **argv) {
    double rounds = (double)number(argc, argv, 1, 400);
    for (passed = 0; passed < rounds; passed += 1)
        here();
    say("passed %ld\n", (long)passed);
}
