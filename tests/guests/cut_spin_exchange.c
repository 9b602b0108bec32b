// A home-made lock from an exchange instruction, held by threads that compute for long inside.
// variant: O0 -O0
// run: 400 4
#include "guest.h"

static volatile int lock;
static long rounds, counter;
static uint64_t order;

static void *body(void *p) {
    uint64_t spins = 0;
    for (long i = 0; i < rounds; i++) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
            spins++;
            __builtin_ia32_pause();
        }
        counter++;
        order = mix(order + (uintptr_t)p + burn(100000));
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    return (void *)spins;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 400);
    long count = number(argc, argv, 2, 4);
    pthread_t threads[16];
    for (uintptr_t i = 0; i < (uintptr_t)count; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < count; i++) say("spins %lu\n", (unsigned long)finish(threads[i]));
    expect(counter == count * rounds);
    say("order %lu\n", order);
}
