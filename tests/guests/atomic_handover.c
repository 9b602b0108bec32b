// Data handed from thread to thread by words that are only loaded and stored: a ring of one producer and one consumer, a sequence lock, a
// flag that is volatile. Nothing here is a locked instruction but what the stores of the C11 atomics need.
// run: 3000
#include "guest.h"
#include <stdatomic.h>

enum { SIZE = 16 };

static struct {
    _Atomic unsigned head, tail;
    uint64_t items[SIZE];
} ring;

static struct {
    _Atomic unsigned sequence;
    // Read while it may be written: atomic each, and not together.
    _Atomic uint64_t a, b;
} guarded;

static volatile int finished;
static int count;

static void wait_a_little(unsigned *tries) {
    if (++*tries % 64 == 0) sched_yield();
}

static void *produce(void *arg) {
    unsigned tries = 0;
    for (int i = 0; i < count; i++) {
        unsigned tail = atomic_load_explicit(&ring.tail, memory_order_relaxed);
        while (tail - atomic_load_explicit(&ring.head, memory_order_acquire) == SIZE) wait_a_little(&tries);
        ring.items[tail % SIZE] = i * 3 + 1;
        atomic_store_explicit(&ring.tail, tail + 1, memory_order_release);

        unsigned s = atomic_load_explicit(&guarded.sequence, memory_order_relaxed);
        atomic_store_explicit(&guarded.sequence, s + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&guarded.a, i, memory_order_relaxed);
        atomic_store_explicit(&guarded.b, i * 2, memory_order_relaxed);
        atomic_store_explicit(&guarded.sequence, s + 2, memory_order_release);
    }
    finished = 1;
    return arg;
}

static void *consume(void *arg) {
    uint64_t sum = 0;
    unsigned tries = 0, empty = 0;
    for (int i = 0; i < count; i++) {
        unsigned head = atomic_load_explicit(&ring.head, memory_order_relaxed);
        while (atomic_load_explicit(&ring.tail, memory_order_acquire) == head) {
            empty++;
            wait_a_little(&tries);
        }
        expect(ring.items[head % SIZE] == (uint64_t)i * 3 + 1);
        sum += ring.items[head % SIZE];
        atomic_store_explicit(&ring.head, head + 1, memory_order_release);
    }
    say("consumed %lu, found it empty %u times\n", (unsigned long)sum, empty);
    return arg;
}

static void *watch(void *arg) {
    uint64_t seen = 0, torn = 0, last = 0;
    unsigned tries = 0;
    while (!finished) {
        unsigned s = atomic_load_explicit(&guarded.sequence, memory_order_acquire);
        uint64_t a = atomic_load_explicit(&guarded.a, memory_order_relaxed);
        uint64_t b = atomic_load_explicit(&guarded.b, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (s % 2 || atomic_load_explicit(&guarded.sequence, memory_order_relaxed) != s) torn++;
        else {
            expect(b == 2 * a && a >= last);
            seen += a != last;
            last = a;
        }
        wait_a_little(&tries);
    }
    say("saw %lu values, and %lu torn ones\n", (unsigned long)seen, (unsigned long)torn);
    return arg;
}

int main(int argc, char **argv) {
    count = number(argc, argv, 1, 3000);
    void *(*roles[])(void *) = {produce, consume, watch};
    pthread_t t[3];
    for (int i = 0; i < 3; i++) expect(pthread_create(&t[i], NULL, roles[i], NULL) == 0);
    for (int i = 0; i < 3; i++) expect(pthread_join(t[i], NULL) == 0);
    return 0;
}
