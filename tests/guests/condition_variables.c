// Producers and consumers at a small buffer, with condition variables; who consumed what differs.
// run: 3 3 2000
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static long buffer[4], count, rounds, producing;

static void *producer(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&lock));
        while (count == 4) ok(pthread_cond_wait(&emptied, &lock));
        buffer[count++] = (intptr_t)p * 1000000 + i;
        ok(pthread_cond_signal(&filled));
        ok(pthread_mutex_unlock(&lock));
    }
    ok(pthread_mutex_lock(&lock));
    if (--producing == 0) ok(pthread_cond_broadcast(&filled));
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *consumer(void *p) {
    uint64_t *result = (uint64_t *)p;
    for (;;) {
        ok(pthread_mutex_lock(&lock));
        while (count == 0 && producing) ok(pthread_cond_wait(&filled, &lock));
        if (count == 0) break;
        result[0]++;
        result[1] = mix(result[1] + buffer[--count]);
        ok(pthread_cond_signal(&emptied));
        ok(pthread_mutex_unlock(&lock));
    }
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(int argc, char **argv) {
    long producers = number(argc, argv, 1, 3), consumers = number(argc, argv, 2, 3), total = 0;
    rounds = number(argc, argv, 3, 2000);
    producing = producers;
    pthread_t threads[32];
    uint64_t results[16][2] = {0};
    for (intptr_t i = 0; i < producers; i++) threads[i] = start(producer, (void *)i);
    for (intptr_t i = 0; i < consumers; i++) threads[producers + i] = start(consumer, results[i]);
    for (intptr_t i = 0; i < producers + consumers; i++) finish(threads[i]);
    for (intptr_t i = 0; i < consumers; i++) {
        total += results[i][0];
        say("consumer %ld: %lu, hash %lu\n", i, results[i][0], results[i][1]);
    }
    expect(total == producers * rounds);
}
