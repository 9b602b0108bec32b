// Threads compete for something of libc's, again and again: the first argument says for what, the second how often. Who got it, in which
// order, is said as a hash: a replay that lets another thread come first says another one.
// run: mutex 2000
// run: spin 2000
// run: rwlock 1000
// run: sem 1000
// run: cond 3000
// run: barrier 1000
// run: once 1000
// run: join 60
// run: stacks 100
// run: malloc 6000
// run: cancel 40
#include "guest.h"

#define THREADS 4
#define MOST 100000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once[MOST];
static sem_t sem, done;
static int rounds, tokens, winner[MOST];
static uint64_t order;
static _Thread_local int me, now;

static void note(uint64_t what) {
    order = mix(order * 31 + what);
}

static void by_mutex(void) {
    ok(pthread_mutex_lock(&mutex));
    note(me);
    ok(pthread_mutex_unlock(&mutex));
}

static void by_spin(void) {
    ok(pthread_spin_lock(&spin));
    note(me);
    ok(pthread_spin_unlock(&spin));
}

static void by_rwlock(void) {
    ok(pthread_rwlock_wrlock(&rwlock));
    note(me);
    ok(pthread_rwlock_unlock(&rwlock));
}

static void by_sem(void) {
    must(sem_wait(&sem));
    note(me);
    must(sem_post(&sem));
}

// The first thread makes tokens, the others take them.
static void by_cond(void) {
    ok(pthread_mutex_lock(&mutex));
    if (me == 0) {
        tokens += THREADS - 1;
        ok(pthread_cond_broadcast(&cond));
    } else {
        while (tokens == 0) ok(pthread_cond_wait(&cond, &mutex));
        tokens--;
        note(me);
    }
    ok(pthread_mutex_unlock(&mutex));
}

static void by_barrier(void) {
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) note(me);
    pthread_barrier_wait(&barrier);
}

static void won(void) {
    winner[now] = me + 1;
}

static void by_once(void) {
    ok(pthread_once(&once[now], won));
}

// Blocks go from thread to thread, so that they are given back by others than those who asked for them.
static void by_malloc(void) {
    static void *shelf[8];
    uint64_t *block = malloc(24 + (now * 7 + me) % 5 * 40);
    expect(block != NULL);
    ok(pthread_mutex_lock(&mutex));
    note((uintptr_t)block);
    void *old = shelf[(now + me) % 8];
    shelf[(now + me) % 8] = block;
    ok(pthread_mutex_unlock(&mutex));
    free(old);
}

static void (*compete)(void);

static void *competitor(void *number) {
    me = (int)(intptr_t)number;
    // All begin at once.
    pthread_barrier_wait(&barrier);
    for (now = 0; now < rounds; now++) {
        compete();
        // What a thread does between two turns takes now longer, now less.
        burn(now % 7 * 20);
    }
    return NULL;
}

// Says how far it came until somebody cancelled it.
static void *until_cancelled(void *rounds_made) {
    for (volatile uint64_t *made = rounds_made; *made < UINT64_MAX; ++*made) {
        pthread_testcancel();
        if (*made == 0) must(sem_post(&done));
    }
    return NULL;
}

static void *short_lived(void *number) {
    return number;
}

// The address of its stack says whether libc found that of an earlier thread free again.
static void *on_a_stack(void *unused) {
    int here;
    note((uintptr_t)&here);
    must(sem_post(&done));
    return unused;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*compete)(void);
    } all[] = {{"mutex", by_mutex}, {"spin", by_spin}, {"rwlock", by_rwlock}, {"sem", by_sem}, {"cond", by_cond},
        {"barrier", by_barrier}, {"once", by_once}, {"malloc", by_malloc}};
    expect(argc == 3);
    rounds = atoi(argv[2]);
    expect(rounds > 0 && rounds <= MOST);
    ok(pthread_spin_init(&spin, 0));
    must(sem_init(&sem, 0, 1));
    must(sem_init(&done, 0, 0));
    ok(pthread_barrier_init(&barrier, NULL, THREADS));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strcmp(argv[1], all[i].name)) compete = all[i].compete;
    }
    if (compete) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) threads[i] = start(competitor, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++) finish(threads[i]);
        for (int i = 0; i < rounds; i++) note(winner[i]);
    } else if (!strcmp(argv[1], "join")) {
        for (int i = 0; i < rounds; i++) {
            pthread_t threads[THREADS];
            for (int k = 0; k < THREADS; k++) threads[k] = start(short_lived, NULL);
            burn(i * 5000);
            for (int k = 0; k < THREADS; k++) finish(threads[k]);
        }
    } else if (!strcmp(argv[1], "cancel")) {
        for (int i = 0; i < rounds; i++) {
            volatile uint64_t made = 0;
            pthread_t thread = start(until_cancelled, (void *)&made);
            must(sem_wait(&done));
            burn(i * 1000);
            ok(pthread_cancel(thread));
            void *result;
            ok(pthread_join(thread, &result));
            expect(result == PTHREAD_CANCELED);
            note(made);
        }
    } else {
        expect(!strcmp(argv[1], "stacks"));
        pthread_attr_t detached;
        ok(pthread_attr_init(&detached));
        ok(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
        for (int i = 0; i < rounds; i++) {
            pthread_t thread;
            ok(pthread_create(&thread, &detached, on_a_stack, NULL));
            must(sem_wait(&done));
        }
    }
    say("%s: %lu\n", argv[1], order);
    return 0;
}
