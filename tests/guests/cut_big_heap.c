// Two threads write to random places of a large heap while they are cut: the state that names a place holds much memory.
// run: 3000 64
#include "guest.h"

static uint64_t *heap;
static size_t words;
static long thousands;

static void *body(void *p) {
    uint64_t x = (uintptr_t)p + 1;
    for (long i = 0; i < thousands * 1000; i++) {
        x = mix(x + heap[x % words]);
        heap[x % words] ^= x;
    }
    return (void *)x;
}

int main(int argc, char **argv) {
    thousands = number(argc, argv, 1, 3000);
    words = number(argc, argv, 2, 64) << 17;
    heap = (uint64_t *)calloc(words, 8);
    expect(heap != NULL);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("results %lu and %lu, heap %lu\n", x, y, hash_bytes(heap, words * 8));
}
