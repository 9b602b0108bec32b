// Thousands of threads, a few at a time: places of ended threads are used again.
// run: 10000
// heavy
#include "guest.h"

static _Atomic long ended;

static void *body(void *p) {
    ended++;
    return (void *)((uintptr_t)p ^ gettid_raw());
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 10000);
    uint64_t hash = 0;
    for (long i = 0; i < count; i += 4) {
        pthread_t threads[4];
        for (uintptr_t j = 0; j < 4; j++) threads[j] = start(body, (void *)(j << 40));
        for (int j = 0; j < 4; j++) hash = mix(hash + (uintptr_t)finish(threads[j]));
    }
    expect(ended >= count);
    say("%ld ended, hash of their ids %lu\n", ended, hash);
}
