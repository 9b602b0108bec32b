// Threads share memory in the one way that is named, which orders all of it: no race.
#define _GNU_SOURCE
#include "../guest.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <threads.h>
#include <unistd.h>

#define ROUNDS 50

// What is shared: plain memory.
static long data, copies[4];

static void change(void) {
    data = data * 3 + 1;
    memmove(copies + 1, copies, sizeof copies - sizeof copies[0]);
    copies[0] = data;
}

static void in_threads(void *(*a)(void *), void *(*b)(void *)) {
    pthread_t one, two;
    pthread_create(&one, NULL, a, "a");
    pthread_create(&two, NULL, b, "b");
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    change();
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive, robust;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sem, other_sem;
static mtx_t c11;
static int turn;

static void *by_mutex(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        change();
        pthread_mutex_unlock(&mutex);
    }
    return _;
}

static void *by_trylock(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        while (pthread_mutex_trylock(&mutex)) sched_yield();
        change();
        pthread_mutex_unlock(&mutex);
    }
    return _;
}

static void *by_recursive(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        pthread_mutex_unlock(&recursive);
        change();
        pthread_mutex_unlock(&recursive);
    }
    return _;
}

static void *dies_with_it(void *_) {
    pthread_mutex_lock(&robust);
    change();
    return _;
}

static void *inherits(void *_) {
    pthread_mutex_lock(&robust);
    pthread_mutex_consistent(&robust);
    change();
    pthread_mutex_unlock(&robust);
    return _;
}

static void *by_c11(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        mtx_lock(&c11);
        change();
        mtx_unlock(&c11);
    }
    return _;
}

static void *by_spin(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_spin_lock(&spin);
        change();
        pthread_spin_unlock(&spin);
    }
    return _;
}

static void *by_cond(void *name) {
    int me = *(char *)name == 'b';
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != me) pthread_cond_wait(&cond, &mutex);
        change();
        turn = !me;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return name;
}

static void *by_sem(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&sem);
        change();
        sem_post(&sem);
    }
    return _;
}

static void *gives(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        change();
        sem_post(&sem);
        sem_wait(&other_sem);
    }
    return _;
}

static void *takes(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&sem);
        change();
        sem_post(&other_sem);
    }
    return _;
}

static void *by_barrier(void *name) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 == (*(char *)name == 'b')) change();
        pthread_barrier_wait(&barrier);
    }
    return name;
}

static void *by_rwlock(void *_) {
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_rwlock_rdlock(&rwlock);
        sum += data;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_wrlock(&rwlock);
        change();
        pthread_rwlock_unlock(&rwlock);
    }
    return sum ? _ : NULL;
}

static void *by_once(void *_) {
    pthread_once(&once, change);
    return data ? _ : NULL;
}

// Atomics.
static atomic_int flag, users;
static _Atomic __int128 wide;

static void *publishes(void *_) {
    change();
    atomic_store_explicit(&flag, 1, memory_order_release);
    return _;
}

static void *sees(void *_) {
    while (!atomic_load_explicit(&flag, memory_order_acquire)) sched_yield();
    change();
    return _;
}

static void *publishes_by_fence(void *_) {
    change();
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&flag, 1, memory_order_relaxed);
    return _;
}

static void *sees_by_fence(void *_) {
    while (!atomic_load_explicit(&flag, memory_order_relaxed)) sched_yield();
    atomic_thread_fence(memory_order_acquire);
    change();
    return _;
}

// The last one to leave has it to itself; who leaves says so by an exchange that others continue.
static void *by_count(void *_) {
    copies[*(char *)_ == 'b']++;
    if (atomic_fetch_sub_explicit(&users, 1, memory_order_acq_rel) == 1) change();
    return _;
}

// Who lets go of a block last gives it back, with the count in it.
static struct block {
    atomic_int owners;
    char text[100];
} *owned;

static void *lets_go(void *_) {
    struct block *mine = owned;
    copies[*(char *)_ == 'b'] = mine->text[5];
    if (atomic_fetch_sub_explicit(&mine->owners, 1, memory_order_acq_rel) == 1) free(mine);
    return _;
}

// A flag that isn't atomic any more, once it has been seen.
static void *sees_and_resets(void *_) {
    while (!atomic_load_explicit(&flag, memory_order_acquire)) sched_yield();
    *(int *)&flag = 0;
    change();
    return _;
}

static void *by_exchange(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        int free = 0;
        while (!atomic_compare_exchange_weak_explicit(&flag, &free, 1, memory_order_acquire, memory_order_relaxed)) {
            free = 0;
            sched_yield();
        }
        change();
        atomic_store_explicit(&flag, 0, memory_order_release);
    }
    return _;
}

static void *publishes_wide(void *_) {
    change();
    wide = (__int128)7 << 70;
    return _;
}

static void *sees_wide(void *_) {
    while (!wide) sched_yield();
    change();
    return _;
}

// What looks at the flag before it is set keeps its hands off.
static void *sees_or_not(void *_) {
    for (int i = 0; i < 4; i++)
        if (atomic_load_explicit(&flag, memory_order_acquire)) {
            change();
            break;
        }
    return _;
}

// Kernel objects.
static int ends[2], set;

static void *writes(void *_) {
    uint64_t one = 1;
    change();
    if (write(ends[1], &one, sizeof one) != sizeof one) exit(2);
    return _;
}

static void *reads(void *_) {
    uint64_t n;
    struct epoll_event e;
    if (set && epoll_wait(set, &e, 1, -1) != 1) exit(2);
    if (read(ends[0], &n, sizeof n) != sizeof n) exit(2);
    change();
    return _;
}

static void *receives_signal(void *_) {
    sigset_t s;
    int signal;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    sigwait(&s, &signal);
    change();
    return _;
}

static void by_signal(void) {
    sigset_t s;
    pthread_t t;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    pthread_create(&t, NULL, receives_signal, NULL);
    change();
    pthread_kill(t, SIGUSR1);
    pthread_join(t, NULL);
}

static void on_signal(int _) {
    (void)_;
    change();
}

static void *waits_for_handler(void *_) {
    sem_wait(&sem);
    return _;
}

// A handler runs in another thread than the one that sent the signal.
static void by_handler(void) {
    pthread_t t;
    signal(SIGUSR2, on_signal);
    change();
    pthread_create(&t, NULL, waits_for_handler, NULL);
    change();
    pthread_kill(t, SIGUSR2);
    sem_post(&sem);
    pthread_join(t, NULL);
    change();
}

// Memory that is used again.
// The compiler must not find out that nobody uses what is written.
static void is_used(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static void *uses_block(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        char *p = malloc(200);
        memset(p, i, 200);
        is_used(p);
        p[i] = 1;
        p = realloc(p, 5000);
        p[4999] = 2;
        is_used(p);
        free(p);
    }
    return _;
}

static void *hands_on(void *_) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        long *p = malloc(sizeof *p);
        *p = i;
        is_used(p);
        free(p);
        pthread_mutex_unlock(&mutex);
    }
    return _;
}

static void *uses_stack(void *_) {
    char all[5000];
    memset(all, 1, sizeof all);
    is_used(all);
    sem_post(&sem);
    return all[4999] ? _ : NULL;
}

static void stacks_again(void) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        pthread_create(&t, &detached, uses_stack, NULL);
        if (i % 3 == 0)
            while (sem_wait(&sem)) {}
    }
    for (int i = 0; i < 13; i++) sem_wait(&sem);
}

// Bytes beside each other are others.
static struct {
    char a, b;
    short c;
} beside;

static void *first_byte(void *_) {
    for (int i = 0; i < ROUNDS; i++) beside.a++;
    return _;
}

static void *second_byte(void *_) {
    for (int i = 0; i < ROUNDS; i++) beside.b++;
    return _;
}

// Threads that never end, each with its own memory or with none.
static struct {
    long n;
    char apart[56];
} counts[2];

static void *counts_on(void *n) {
    for (;;) {
        ++*(long *)n;
        __asm__ volatile("" : : : "memory");
    }
    return n;
}

static void *only_computes(void *_) {
    for (;;) __asm__ volatile("");
    return _;
}

static void *one_change(void *_) {
    change();
    return _;
}

static int one_c11(void *_) {
    (void)_;
    change();
    return 0;
}

static void joins(void) {
    pthread_t t;
    struct timespec late = {.tv_sec = 1L << 40};
    for (int i = 0; i < 6; i++) {
        change();
        pthread_create(&t, NULL, one_change, NULL);
        switch (i % 3) {
        case 0: pthread_join(t, NULL); break;
        case 1:
            while (pthread_tryjoin_np(t, NULL) == EBUSY) sched_yield();
            break;
        default: pthread_timedjoin_np(t, NULL, &late);
        }
    }
    thrd_t c;
    change();
    thrd_create(&c, one_c11, NULL);
    thrd_join(c, NULL);
    change();
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    bool is_pipe = !strcmp(kind, "pipe");
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_NORMAL);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &a);
    pthread_spin_init(&spin, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    mtx_init(&c11, mtx_plain);
#define IS(name) else if (!strcmp(kind, name))
    if (!strcmp(kind, "mutex")) in_threads(by_mutex, by_mutex);
    IS("trylock") in_threads(by_trylock, by_mutex);
    IS("recursive") in_threads(by_recursive, by_recursive);
    IS("robust") {
        pthread_t t;
        pthread_create(&t, NULL, dies_with_it, NULL);
        inherits(NULL);
        pthread_join(t, NULL);
    }
    IS("robust-orphan") {
        pthread_t t;
        pthread_create(&t, NULL, dies_with_it, NULL);
        pthread_join(t, NULL);
        in_threads(inherits, inherits);
    }
    IS("c11") in_threads(by_c11, by_c11);
    IS("spin") in_threads(by_spin, by_spin);
    IS("cond") in_threads(by_cond, by_cond);
    IS("sem") {
        sem_init(&sem, 0, 1);
        in_threads(by_sem, by_sem);
    }
    IS("handover") in_threads(gives, takes);
    IS("barrier") in_threads(by_barrier, by_barrier);
    IS("rwlock") in_threads(by_rwlock, by_rwlock);
    IS("once") in_threads(by_once, by_once);
    IS("joins") joins();
    IS("release") in_threads(publishes, sees);
    IS("fence") in_threads(publishes_by_fence, sees_by_fence);
    IS("count") {
        users = 2;
        in_threads(by_count, by_count);
    }
    IS("owners") {
        owned = malloc(sizeof *owned);
        memset(owned->text, 1, sizeof owned->text);
        owned->owners = 2;
        in_threads(lets_go, lets_go);
    }
    IS("reset") in_threads(publishes, sees_and_resets);
    IS("exchange") in_threads(by_exchange, by_exchange);
    IS("wide") in_threads(publishes_wide, sees_wide);
    IS("sees-or-not") in_threads(publishes, sees_or_not);
    else if (is_pipe || !strcmp(kind, "socketpair") || !strcmp(kind, "epoll")) {
        if (is_pipe ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
        if (!strcmp(kind, "epoll")) {
            struct epoll_event e = {.events = EPOLLIN};
            set = epoll_create1(0);
            epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &e);
        }
        in_threads(writes, reads);
    }
    IS("eventfd") {
        ends[0] = eventfd(0, 0);
        ends[1] = dup(ends[0]);
        in_threads(writes, reads);
    }
    IS("signal") by_signal();
    IS("handler") by_handler();
    IS("blocks") in_threads(uses_block, uses_block);
    IS("handed-on") in_threads(hands_on, hands_on);
    IS("stacks") stacks_again();
    IS("endless") {
        pthread_t t;
        pthread_create(&t, NULL, counts_on, &counts[0]);
        pthread_create(&t, NULL, only_computes, NULL);
        pthread_create(&t, NULL, counts_on, &counts[1]);
        in_threads(uses_block, uses_block);
    }
    IS("beside") in_threads(first_byte, second_byte);
    else return 3;
    printf("%s: %lx\n", kind, (unsigned long)(data ^ copies[1]));
    return 0;
}
