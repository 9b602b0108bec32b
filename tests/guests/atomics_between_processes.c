// Atomic instructions, and a lock made of them, on memory that processes share.
// run: 4 300
#include "guest.h"
#include <sys/wait.h>

struct shared {
    uint64_t tickets, lock, held, order;
    uint32_t ready;
};

// A word that is taken by whoever changes it from 0 to 1.
static void take(uint64_t *lock) {
    uint64_t free = 0;
    while (!__atomic_compare_exchange_n(lock, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        free = 0;
        sched_yield();
    }
}

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 4), rounds = number(argc, argv, 2, 300);
    struct shared *s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (long i = 0; i < processes; i++) {
        if (must(fork()) != 0) continue;
        __atomic_fetch_add(&s->ready, 1, __ATOMIC_SEQ_CST);
        while (__atomic_fetch_add(&s->ready, 0, __ATOMIC_SEQ_CST) < processes) sched_yield();
        uint64_t mine = 0;
        for (long n = 0; n < rounds; n++) {
            mine = mix(mine ^ __atomic_fetch_add(&s->tickets, 1, __ATOMIC_SEQ_CST));
            take(&s->lock);
            s->held++;
            s->order = mix(s->order + i);
            __atomic_exchange_n(&s->lock, 0, __ATOMIC_RELEASE);
        }
        say("process %ld: tickets %lu\n", i, (unsigned long)mine);
        _exit(0);
    }
    for (long i = 0; i < processes; i++) {
        int status;
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect(s->tickets == (uint64_t)(processes * rounds) && s->held == (uint64_t)(processes * rounds));
    say("order %lu\n", (unsigned long)s->order);
}
