// Loops too small for any patch: a jump to itself, a decrement and a branch, a loop of one-byte instructions. Two run for ever in one
// thread each until the process ends; others end and say how they were passed.
// run: => 3
#include "guest.h"

static volatile uint64_t passed[4];

static void *self_jump(void *unused) {
    (void)unused;
    __asm__ volatile("1: jmp 1b");
    return NULL;
}

static void *pause_jump(void *unused) {
    (void)unused;
    __asm__ volatile("1: pause\n jmp 1b");
    return NULL;
}

static void *counts_down(void *p) {
    uint64_t n = 60000000 + (uintptr_t)p;
    for (int i = 0; i < 4; i++) {
        uint64_t left = n;
        __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(left));
        passed[(uintptr_t)p]++;
    }
    return (void *)passed[2];
}

static void *one_byte(void *p) {
    uint64_t n = 30000000, x = (uintptr_t)p;
    for (int i = 0; i < 4; i++) {
        uint64_t left = n;
        __asm__ volatile("1: nop\n nop\n cmc\n cld\n inc %1\n dec %0\n jnz 1b" : "+r"(left), "+r"(x));
        passed[2]++;
    }
    return (void *)(x + passed[0] * 1000 + passed[1]);
}

int main(void) {
    pthread_t a = start(counts_down, (void *)0), b = start(counts_down, (void *)1), c = start(one_byte, (void *)2);
    start(self_jump, NULL);
    start(pause_jump, NULL);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b), z = (uint64_t)finish(c);
    say("saw %lu, %lu, %lu\n", x, y, z);
    return 3;
}
