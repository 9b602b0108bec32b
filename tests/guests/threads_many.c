// Very many threads that are all alive at the same time, and all have something to do.
// run: 200
// run: 1000
// heavy
#include "guest.h"

static pthread_barrier_t all_there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long alive, most, steps;
static uint64_t order;

static void *body(void *p) {
    ok(pthread_mutex_lock(&lock));
    if (++alive > most) most = alive;
    ok(pthread_mutex_unlock(&lock));
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < 3; i++) {
        ok(pthread_mutex_lock(&lock));
        steps++;
        order = mix(order + (uintptr_t)p);
        ok(pthread_mutex_unlock(&lock));
        sched_yield();
    }
    ok(pthread_mutex_lock(&lock));
    alive--;
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 200);
    pthread_t *threads = (pthread_t *)calloc(count, sizeof *threads);
    pthread_attr_t small;
    ok(pthread_attr_init(&small));
    ok(pthread_attr_setstacksize(&small, 64 << 10));
    ok(pthread_barrier_init(&all_there, NULL, count));
    for (intptr_t i = 0; i < count; i++) ok(pthread_create(&threads[i], &small, body, (void *)i));
    for (intptr_t i = 0; i < count; i++) finish(threads[i]);
    expect(most == count && alive == 0 && steps == 3 * count);
    say("%ld threads at once, order %lu\n", most, order);
    free(threads);
}
