// A thread that has become the only one can't make another one, and tries again: who makes threads is the first that synchronises afterwards, however long
// it computes before.
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t order;

static void *ends(void *unused) {
    return unused;
}

static void comes(uint64_t who) {
    ok(pthread_mutex_lock(&lock));
    order = 10 * order + who;
    ok(pthread_mutex_unlock(&lock));
}

static void *works(void *who) {
    comes((uintptr_t)who);
    return NULL;
}

int main(void) {
    // Their stacks are there, and are used again.
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = start(ends, NULL);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    static char stack[4096];
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    // No namespace of its own goes with a file system that is shared.
    errno = 0;
    expect(syscall(SYS_clone, flags | CLONE_NEWNS, stack + sizeof(stack), 0, 0, 0) == -1);
    expect(errno == EINVAL);
    for (uintptr_t i = 0; i < 2; i++) threads[i] = start(works, (void *)(i + 2));
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < 60000000; i++) sum = sum + i;
    comes(1);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    say("order %lu\n", order);
}
