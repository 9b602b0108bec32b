// Threads map much memory, write a little of it, and give it back: more in all than there is room for at once. What is mapped anew is full of zeros,
// and the same for all threads.
#include "guest.h"

enum { THREADS = 2, ROUNDS = 80 };
static const size_t SIZE = 1ul << 30, PAGES = 16;
static pthread_barrier_t barrier;
static volatile char *shared;

static void *body(void *p) {
    long me = (intptr_t)p;
    uint64_t places = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char *m = must(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        for (size_t k = 0; k < PAGES; k++) {
            volatile char *at = m + k * (SIZE / PAGES);
            expect(*at == 0);
            *at = me + 1;
        }
        // Pieces of their own protection, and one that goes first.
        must(mprotect(m + 0x1000, 0x1000, PROT_NONE));
        must(munmap(m + 0x10000, 0x3000));
        if (me == i % THREADS) shared = m;
        pthread_barrier_wait(&barrier);
        expect(shared[SIZE / PAGES] == i % THREADS + 1);
        places = mix(places + (uintptr_t)m);
        pthread_barrier_wait(&barrier);
        // One piece goes elsewhere, and grows.
        char *moved = must(mremap(m + 0x20000, 0x10000, 0x40000, MREMAP_MAYMOVE));
        expect(moved[0x3ffff] == 0);
        must(munmap(moved, 0x40000));
        must(munmap(m, SIZE));
        pthread_barrier_wait(&barrier);
    }
    return (void *)places;
}

int main(void) {
    pthread_t threads[THREADS];
    ok(pthread_barrier_init(&barrier, NULL, THREADS));
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
    uint64_t all = 0;
    for (int i = 0; i < THREADS; i++) all = mix(all + (uint64_t)finish(threads[i]));
    say("at the places %lu\n", all);
}
