// What it costs to give an event its place in an order (Castor, figure 2), by several schemes:
//
//   events SCHEME private|contended THREADS ROUNDS      prints the nanoseconds of one event of a thread
//
// An event is an atomic addition to an object, of the thread's own or of all, and an entry of 16 bytes in the thread's log. The order must be
// sound: the event and its stamp are one step. So but for `lock` the object is locked meanwhile.
//   plain    the addition alone: nothing is logged
//   mutex    a lock and an unlock of a pthread mutex alone: nothing is logged
//   lock     one lock for everything
//   counter  stamps from one counter, counted up by `lock xadd`
//   tsc      stamps from the time stamp counter, read behind a fence
//   shard    a sequence of the object's own: made odd by a compare-and-swap, then even again
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define MOST_THREADS 64
#define LOG 65536

struct object {
    _Alignas(128) _Atomic uint64_t value;
    _Alignas(128) _Atomic uint64_t sequence;
    _Alignas(128) pthread_mutex_t mutex;
};

struct entry {
    uint64_t object, stamp;
};

static struct object objects[MOST_THREADS];
static struct entry logs[MOST_THREADS][LOG];
static _Alignas(128) _Atomic uint64_t one_lock;
static _Alignas(128) _Atomic uint64_t one_counter;
static _Alignas(128) uint64_t under_the_lock;
static pthread_barrier_t barrier;
static long rounds;
static int contended;

// Makes an even number odd; what it was.
static inline uint64_t enter(_Atomic uint64_t *sequence) {
    for (;;) {
        uint64_t was = atomic_load_explicit(sequence, memory_order_relaxed);
        if (!(was & 1) && atomic_compare_exchange_weak(sequence, &was, was + 1)) return was;
        _mm_pause();
    }
}

static inline void leave(_Atomic uint64_t *sequence, uint64_t was) {
    atomic_store_explicit(sequence, was + 2, memory_order_release);
}

static inline void add(struct object *o) {
    atomic_fetch_add_explicit(&o->value, 1, memory_order_relaxed);
}

static uint64_t plain(struct object *o) {
    add(o);
    return 0;
}

static uint64_t mutex(struct object *o) {
    pthread_mutex_lock(&o->mutex);
    pthread_mutex_unlock(&o->mutex);
    return 0;
}

static uint64_t lock(struct object *o) {
    uint64_t was = enter(&one_lock);
    add(o);
    uint64_t stamp = ++under_the_lock;
    leave(&one_lock, was);
    return stamp;
}

static uint64_t counter(struct object *o) {
    uint64_t was = enter(&o->sequence);
    add(o);
    uint64_t stamp = atomic_fetch_add(&one_counter, 1);
    leave(&o->sequence, was);
    return stamp;
}

static uint64_t tsc(struct object *o) {
    uint64_t was = enter(&o->sequence);
    add(o);
    _mm_lfence();
    uint64_t stamp = __rdtsc();
    leave(&o->sequence, was);
    return stamp;
}

static uint64_t shard(struct object *o) {
    uint64_t was = enter(&o->sequence);
    add(o);
    leave(&o->sequence, was);
    return was / 2;
}

#define SCHEME(name, logs_it) {#name, name, logs_it}
static const struct {
    const char *name;
    uint64_t (*event)(struct object *);
    int logs_it;
} schemes[] = {SCHEME(plain, 0), SCHEME(mutex, 0), SCHEME(lock, 1), SCHEME(counter, 1), SCHEME(tsc, 1), SCHEME(shard, 1)};

static int chosen = -1;

static void *work(void *number) {
    long me = (long)number;
    struct object *o = &objects[contended ? 0 : me];
    uint64_t (*event)(struct object *) = schemes[chosen].event;
    int logs_it = schemes[chosen].logs_it;
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < rounds; i++) {
        uint64_t stamp = event(o);
        if (logs_it) logs[me][i % LOG] = (struct entry){(uint64_t)(uintptr_t)o, stamp};
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    for (int i = 0; i < (int)(sizeof schemes / sizeof *schemes); i++) {
        if (!strcmp(argv[1], schemes[i].name)) chosen = i;
    }
    contended = !strcmp(argv[2], "contended");
    long threads = atol(argv[3]);
    rounds = atol(argv[4]);
    if (chosen < 0 || threads < 1 || threads > MOST_THREADS || rounds < 1) return 2;
    for (int i = 0; i < MOST_THREADS; i++) pthread_mutex_init(&objects[i].mutex, NULL);
    memset(logs, 1, sizeof logs[0] * threads);
    pthread_barrier_init(&barrier, NULL, threads + 1);
    pthread_t all[MOST_THREADS];
    for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, (void *)i);
    pthread_barrier_wait(&barrier);
    double begun = now();
    pthread_barrier_wait(&barrier);
    double ended = now();
    for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("%.3f\n", (ended - begun) / rounds);
}
