// Every atomic operation in every size, by several threads on the same words: what each of them got depends on the order of all.
// run: 2 300
// run: 4 200
#include "guest.h"
#include <stdatomic.h>

#ifdef __clang__
typedef unsigned __int128 wide;
#else
// gcc asks libatomic for those of 16 bytes.
typedef uint64_t wide;
#endif

static _Atomic uint8_t bytes[2];
static _Atomic uint16_t halves[2];
static _Atomic uint32_t words[2];
static _Atomic uint64_t longs[2];
static _Alignas(16) wide wides[2];
static int rounds;
static pthread_barrier_t together;

static void note(uint64_t *hash, uint64_t v) { *hash = (*hash ^ v) * 0x100000001b3ull; }

#define EACH(type, object)                                                                              \
    do {                                                                                                \
        __typeof__(object) *w = &object;                                                                \
        type e = atomic_load(w);                                                                        \
        note(&hash, e);                                                                                  \
        note(&hash, atomic_fetch_add(w, (type)n));                                                       \
        note(&hash, atomic_fetch_sub(w, (type)(n / 3)));                                                 \
        note(&hash, atomic_fetch_or(w, (type)(n & 0x15)));                                               \
        note(&hash, atomic_fetch_xor(w, (type)(n * 7)));                                                 \
        note(&hash, atomic_fetch_and(w, (type) ~(n & 0x22)));                                            \
        note(&hash, atomic_compare_exchange_strong(w, &e, (type)(e + 1)));                               \
        note(&hash, e);                                                                                  \
        note(&hash, atomic_compare_exchange_weak(w, &e, (type)(e + n)));                                 \
        note(&hash, e);                                                                                  \
        if (n % 5 == 0) note(&hash, atomic_exchange(w, (type)n));                                        \
        if (n % 7 == 0) atomic_store(w, (type)(n + 1));                                                 \
        if (n % 8 == 0) atomic_store_explicit(w, (type)(n + 2), memory_order_release);                  \
        note(&hash, atomic_load_explicit(w, memory_order_acquire));                                      \
        note(&hash, atomic_load_explicit(w, memory_order_relaxed));                                      \
    } while (0)

// Those of 16 bytes, by builtins.
static void wide_ones(uint64_t *hash, wide *w, uint64_t n) {
    const int half = sizeof(wide) * 4;
    wide e = __atomic_load_n(w, __ATOMIC_SEQ_CST), v = ((wide)n << (sizeof n * 8 - 1)) * 64 | n;
    note(hash, e ^ (uint64_t)(e >> half));
    wide old = __atomic_fetch_add(w, v, __ATOMIC_SEQ_CST);
    note(hash, old ^ (uint64_t)(old >> half));
    note(hash, __atomic_compare_exchange_n(w, &e, e + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    note(hash, e ^ (uint64_t)(e >> half));
    if (n % 5 == 0) {
        old = __atomic_exchange_n(w, v, __ATOMIC_ACQ_REL);
        note(hash, old);
    }
    if (n % 7 == 0) __atomic_store_n(w, v, __ATOMIC_RELEASE);
}

static void *work(void *arg) {
    uint64_t me = (uintptr_t)arg, hash = 0xcbf29ce484222325ull;
    pthread_barrier_wait(&together);
    for (int i = 0; i < rounds; i++) {
        uint64_t n = me * 1000003 + i;
        EACH(uint8_t, bytes[i % 2]);
        EACH(uint16_t, halves[i % 2]);
        EACH(uint32_t, words[i % 2]);
        EACH(uint64_t, longs[i % 2]);
        wide_ones(&hash, &wides[i % 2], n);
        atomic_thread_fence(memory_order_seq_cst);
    }
    return (void *)hash;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 2);
    rounds = number(argc, argv, 2, 300);
    pthread_barrier_init(&together, NULL, threads);
    pthread_t t[64];
    for (int i = 0; i < threads; i++) expect(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < threads; i++) {
        void *hash;
        expect(pthread_join(t[i], &hash) == 0);
        say("thread %d saw %lu\n", i, (unsigned long)hash);
    }
    say("%u %u %u %lu %lu\n", bytes[0], halves[0], words[0], (unsigned long)longs[0], (unsigned long)wides[0]);
    return 0;
}
