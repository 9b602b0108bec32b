// membarrier(2): which commands there are, registering first, and two threads that rely on it.
// run: 300
#include "guest.h"
#include <linux/membarrier.h>
#include <stdatomic.h>

static _Atomic long stop, mine, other;

static void *fast_side(void *unused) {
    (void)unused;
    long seen = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        atomic_store_explicit(&mine, atomic_load_explicit(&mine, memory_order_relaxed) + 1, memory_order_relaxed);
        __asm__ volatile("" ::: "memory");
        seen = atomic_load_explicit(&other, memory_order_relaxed);
        sched_yield();
    }
    return (void *)seen;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 300);
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0) {
        expect(errno == ENOSYS || errno == EPERM);
        say("not here\n");
        return 0;
    }
    say("commands %lx\n", commands);
    fails(EINVAL, syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 1, 0));
    fails(EINVAL, syscall(SYS_membarrier, 1 << 30, 0, 0));
    if (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        fails(EPERM, syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
        must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
        pthread_t thread = start(fast_side, NULL);
        for (long i = 1; i <= rounds; i++) {
            atomic_store_explicit(&other, i, memory_order_relaxed);
            must(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
        }
        stop = 1;
        long seen = (long)finish(thread);
        expect(seen >= 0 && seen <= rounds);
        say("other side made %ld, saw %ld\n", (long)mine, seen);
    }
    if (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) {
        must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
        must(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    }
    if (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) must(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
}
