// Home-made synchronisation from atomics: a stack without locks, a ticket lock, a sequence lock, Peterson's algorithm.
// variant: O0 -O0
// run: 20000
#include "guest.h"
#include <stdatomic.h>

struct node {
    struct node *next;
    long value;
};

static _Atomic(struct node *) top;
static atomic_long tickets, serving, popped_sum;
static long rounds, handovers, in_ticket, in_peterson, a, b;
static atomic_uint sequence;
static atomic_int interested[2], turn;
static uint64_t order;

static void *pusher(void *p) {
    struct node *nodes = (struct node *)calloc(rounds, sizeof *nodes);
    for (long i = 0; i < rounds; i++) {
        nodes[i].value = i;
        nodes[i].next = atomic_load(&top);
        while (!atomic_compare_exchange_weak(&top, &nodes[i].next, &nodes[i])) {
        }
        if (i % 16 == 15) {
            struct node *all = atomic_exchange(&top, NULL);
            for (; all; all = all->next) popped_sum += all->value;
        }
    }
    for (long i = 0; i < rounds / 4; i++) {
        long mine = atomic_fetch_add(&tickets, 1);
        while (atomic_load(&serving) != mine) sched_yield();
        in_ticket++;
        order = mix(order + (uintptr_t)p);
        atomic_store(&serving, mine + 1);
    }
    return NULL;
}

static void *peterson(void *p) {
    int me = (intptr_t)p;
    for (long i = 0; i < handovers; i++) {
        atomic_store(&interested[me], 1);
        atomic_store(&turn, 1 - me);
        while (atomic_load(&interested[1 - me]) && atomic_load(&turn) == 1 - me) {
        }
        in_peterson++;
        // A writer of a sequence lock beside it.
        atomic_fetch_add(&sequence, 1);
        a++, b++;
        atomic_fetch_add(&sequence, 1);
        atomic_store(&interested[me], 0);
    }
    return NULL;
}

static void *reader(void *unused) {
    (void)unused;
    long good = 0, torn = 0;
    while (good < 100) {
        unsigned before = atomic_load(&sequence);
        long x = *(volatile long *)&a, y = *(volatile long *)&b;
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && atomic_load(&sequence) == before) {
            expect(x == y);
            good++;
        } else {
            torn++;
        }
    }
    return (void *)torn;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 20000);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(pusher, (void *)i);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    for (struct node *rest = top; rest; rest = rest->next) popped_sum += rest->value;
    expect(popped_sum == 4 * (rounds * (rounds - 1) / 2) && in_ticket == rounds / 4 * 4);
    // On one processor each of these may cost a whole slice.
    handovers = rounds / 200;
    threads[0] = start(peterson, (void *)0);
    threads[1] = start(peterson, (void *)1);
    threads[2] = start(reader, NULL);
    finish(threads[0]);
    finish(threads[1]);
    long torn = (long)finish(threads[2]);
    expect(in_peterson == 2 * handovers && a == b && a == 2 * handovers);
    say("order %lu, torn %ld\n", order, torn);
}
