// Two threads reach the same memory, and nothing orders them: one race of the kind that is named, whatever the machine does.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int shared;
static char bytes[64];
static int *block;
static int plain_flag;
static atomic_int flag, mixed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;

__attribute__((noinline)) static void add(int n) { shared += n; }

static void *plainly(void *_) {
    add(1);
    return _;
}

static void *locked(void *_) {
    pthread_mutex_lock(&mutex);
    add(2);
    pthread_mutex_unlock(&mutex);
    return _;
}

static void *otherwise_locked(void *_) {
    pthread_mutex_lock(&other);
    add(3);
    pthread_mutex_unlock(&other);
    return _;
}

static void *only_reads(void *_) { return shared == 12345 ? NULL : _; }

// Two ways to one function.
__attribute__((noinline)) static void left(void) {
    add(4);
    __asm__ volatile("");
}

__attribute__((noinline)) static void right(void) {
    add(5);
    __asm__ volatile("");
}

static void *goes_left(void *_) {
    left();
    return _;
}

static void *goes_right(void *_) {
    right();
    return _;
}

static void *reads_and_changes(void *_) {
    pthread_rwlock_rdlock(&rwlock);
    add(6);
    pthread_rwlock_unlock(&rwlock);
    return _;
}

static void *on_heap(void *_) {
    block[3]++;
    return _;
}

static void *copies(void *_) {
    char own[40];
    memcpy(own, bytes, sizeof own);
    __asm__ volatile("" : : "r"(own) : "memory");
    return own[0] == 'x' ? NULL : _;
}

static void *fills(void *_) {
    memset(bytes + 20, (int)(size_t)_, 30);
    return _;
}

static void *frees(void *_) {
    free(block);
    return _;
}

// Behind what an allocator keeps in a block that is free.
static void *uses(void *_) {
    block[8] = 1;
    return _;
}

// Publication by a flag that is nothing but memory.
static void *publishes_plainly(void *_) {
    shared = 1;
    plain_flag = 1;
    return _;
}

static void *sees_plainly(void *_) {
    while (!plain_flag) sched_yield();
    return shared ? _ : NULL;
}

// It mostly sees what the other one has changed meanwhile, and makes another call then. A replay in which it sees that too early leaves the
// recorded path before the other one has done its part.
static void *reads_late(void *_) {
    for (long i = 0; i < 30 * 1000 * 1000; i++) __asm__ volatile("");
    if (shared) getppid();
    else getuid();
    return _;
}

static void *publishes_relaxed(void *_) {
    add(7);
    atomic_store_explicit(&flag, 1, memory_order_relaxed);
    return _;
}

static void *sees_relaxed(void *_) {
    while (!atomic_load_explicit(&flag, memory_order_acquire)) sched_yield();
    add(8);
    return _;
}

// Locks for something else, and the writing of a log, are no order.
static void *logs(void *_) {
    add(9);
    printf("a\n");
    free(malloc(100));
    return _;
}

static void *logs_first(void *_) {
    free(malloc(100));
    printf("a\n");
    add(10);
    return _;
}

// It looks at the flag while that isn't set, and goes on nevertheless; who sets it does so later. In a replay it may be set earlier.
static void *looks_and_goes_on(void *_) {
    if (atomic_load_explicit(&flag, memory_order_acquire)) exit(2);
    sem_post(&sem);
    add(11);
    return _;
}

static void *sets_later(void *_) {
    sem_wait(&sem);
    add(12);
    atomic_store_explicit(&flag, 1, memory_order_release);
    return _;
}

static void *atomically(void *_) {
    atomic_fetch_add(&mixed, 1);
    return _;
}

static void *not_atomically(void *_) {
    (*(int *)&mixed)++;
    return _;
}

static void *on_a_stack(void *p) {
    ++*(int *)p;
    return NULL;
}

static void in_threads(void *(*a)(void *), void *(*b)(void *), void *argument) {
    pthread_t one, two;
    pthread_create(&one, NULL, a, argument);
    pthread_create(&two, NULL, b, argument);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    int on_stack = 0;
    block = malloc(16 * sizeof *block);
#define IS(name) else if (!strcmp(kind, name))
    if (!strcmp(kind, "plain")) in_threads(plainly, plainly, NULL);
    IS("read") in_threads(plainly, only_reads, NULL);
    IS("one-side") in_threads(plainly, locked, NULL);
    IS("two-locks") in_threads(otherwise_locked, locked, NULL);
    IS("two-ways") in_threads(goes_left, goes_right, NULL);
    IS("read-lock") in_threads(reads_and_changes, reads_and_changes, NULL);
    IS("heap") in_threads(on_heap, on_heap, NULL);
    IS("copy") in_threads(copies, fills, NULL);
    IS("free") in_threads(uses, frees, NULL);
    IS("plain-flag") in_threads(publishes_plainly, sees_plainly, NULL);
    IS("flag-awaited") in_threads(sees_plainly, publishes_plainly, NULL);
    IS("astray") in_threads(reads_late, plainly, NULL);
    IS("relaxed") in_threads(publishes_relaxed, sees_relaxed, NULL);
    IS("log") in_threads(logs, logs_first, NULL);
    IS("unset") in_threads(looks_and_goes_on, sets_later, NULL);
    IS("mixed") in_threads(atomically, not_atomically, NULL);
    IS("stack") in_threads(on_a_stack, on_a_stack, &on_stack);
    IS("create") {
        pthread_t t;
        pthread_create(&t, NULL, plainly, NULL);
        add(13);
        pthread_join(t, NULL);
    }
    else return 3;
    printf("%s: %d %d\n", kind, shared, on_stack);
    return 0;
}
