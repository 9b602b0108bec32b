// Two threads count in tight loops that hold their counters in memory (O0), in a register (O2) or in a vector register (vector), until a
// third tells them to stop. What they say depends on where exactly they were cut.
// flags: -O2
// variant: O0 -O0
// variant: vector -O2 -DVECTOR
// variant: x87 -O2 -DX87
// run: 5
#include "guest.h"
#include <emmintrin.h>

static volatile int stop;
static volatile int counting[2];

static void *body(void *p) {
    counting[(intptr_t)p] = 1;
#if defined VECTOR
    __m128i counter = _mm_set_epi64x((intptr_t)p, 0), one = _mm_set_epi64x(2, 1);
    while (!stop) {
        counter = _mm_add_epi64(counter, one);
        __asm__ volatile("" : "+x"(counter));
    }
    return (void *)(_mm_cvtsi128_si64(counter) + (_mm_cvtsi128_si64(_mm_srli_si128(counter, 8)) << 32));
#elif defined X87
    long double counter = (intptr_t)p;
    while (!stop) {
        counter += 0.5L;
        __asm__ volatile("" : "+t"(counter));
    }
    return (void *)(uint64_t)(counter * 2);
#else
    uint64_t counter = (uintptr_t)p;
    while (!stop) {
        counter++;
        __asm__ volatile("" : : : "cc");
    }
    return (void *)counter;
#endif
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 5);
    for (long i = 0; i < rounds; i++) {
        stop = counting[0] = counting[1] = 0;
        pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
        // Who counts lets nobody else run by itself: that we go on when both have begun takes a cut.
        do
            must(nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL));
        while (!counting[0] || !counting[1]);
        stop = 1;
        uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
        say("counted %lu and %lu\n", x, y);
    }
}
