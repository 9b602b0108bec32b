// Threads that take locks, wait for each other and hand things on; when asked to, with more in between that is no synchronisation: memory taken and
// given back, or computation. Says in which order everything was had.
// run: memory
#include "guest.h"

#define THREADS 4
#define ROUNDS 60

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static uint64_t order;
static int stock;
static bool memory, work;

static void takes_and_gives_back(int me) {
    char *volatile some[6];
    for (int i = 0; i < 6; i++) memset(some[i] = malloc(16 << i), me, 16 << i);
    for (int i = 0; i < 6; i++) free(some[i]);
}

static void inserted(int me, int round) {
    // Not the same for all, and not always.
    if ((me + round) % 3 == 0) return;
    if (memory) takes_and_gives_back(me);
    if (work) {
        volatile uint64_t x = me;
        for (int i = 0; i < 20000 * (me + 1); i++) x = mix(x);
    }
}

static void *body(void *p) {
    int me = (int)(intptr_t)p;
    // The first block makes the thread's heap, in a turn.
    takes_and_gives_back(me);
    for (int round = 0; round < ROUNDS; round++) {
        inserted(me, round);
        ok(pthread_mutex_lock(&lock));
        order = mix(order + me);
        if (me % 2) {
            stock++;
            ok(pthread_cond_signal(&more));
        } else {
            while (stock == 0) ok(pthread_cond_wait(&more, &lock));
            stock--;
            order = mix(order * 7 + me);
        }
        ok(pthread_mutex_unlock(&lock));
        inserted(me, round + 1);
        ok(pthread_mutex_lock(&other));
        order = mix(order * 3 + me);
        ok(pthread_mutex_unlock(&other));
        if (round % 10 == 4) pthread_barrier_wait(&all);
        else if (round % 10 == 9) inserted(me, round);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    bool everything = strcmp(what, "all") == 0;
    memory = everything || strcmp(what, "memory") == 0;
    work = everything || strcmp(what, "work") == 0;
    ok(pthread_barrier_init(&all, NULL, THREADS));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    say("order %lu\n", order);
}
