// FUTEX_WAKE_OP changes a word and wakes who waits: whoever is woken finds the word changed, though the call that did it may not be over; and the
// change has its place among other threads' on the same word.
// run: 4 60
#include "guest.h"
#include <linux/futex.h>

enum { ADDED = 1000 };

static uint32_t stage, sum;
static sem_t seen;
static long rounds;

static long futex(void *word, int op, uint32_t value, uintptr_t extra, void *other, uint32_t last) {
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, extra, other, last);
}

static void *waits(void *unused) {
    for (uint32_t i = 0; i < rounds; i++) {
        // Woken, or too late to wait.
        if (futex(&stage, FUTEX_WAIT, i, 0, NULL, 0) != 0) expect(errno == EAGAIN);
        expect(__atomic_load_n(&stage, __ATOMIC_SEQ_CST) == i + 1);
        must(sem_post(&seen));
    }
    return unused;
}

// Those who wait are woken as those of the first word, or as those of the second.
static void wakes(int threads) {
    pthread_t all[threads];
    long woken = 0;
    must(sem_init(&seen, 0, 0));
    for (int i = 0; i < threads; i++) all[i] = start(waits, NULL);
    for (uint32_t i = 0; i < rounds; i++) {
        for (int n = 0; n < 5; n++) sched_yield();
        woken += must(i % 2 ? futex(&stage, FUTEX_WAKE_OP, INT_MAX, 0, &stage, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GE, 0))
                            : futex(&sum, FUTEX_WAKE_OP, 0, INT_MAX, &stage, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GE, 0)));
        for (int n = 0; n < threads; n++) must(sem_wait(&seen));
    }
    for (int i = 0; i < threads; i++) finish(all[i]);
    say("woken %ld\n", woken);
}

static void *adds(void *own) {
    uint64_t order = 0;
    for (long i = 0; i < rounds; i++) {
        if ((uintptr_t)own % 2) must(futex(&stage, FUTEX_WAKE_OP, 0, 0, &sum, FUTEX_OP(FUTEX_OP_ADD, ADDED, FUTEX_OP_CMP_EQ, 0)));
        else order = mix(order + __atomic_fetch_add(&sum, 1, __ATOMIC_SEQ_CST));
    }
    return (void *)order;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 60);
    wakes(threads);
    pthread_t all[threads];
    uint64_t order = 0;
    for (int i = 0; i < threads; i++) all[i] = start(adds, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++) order = order * 31 + (uint64_t)finish(all[i]);
    expect(sum == rounds * (threads / 2 * ADDED + (threads + 1) / 2));
    say("in the order %lu\n", order);
}
