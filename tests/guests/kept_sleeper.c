// A thread sleeps on a condition from the beginning to the end of a long run, and all others take and give back the mutex of that condition.
//   kept_sleeper THREADS ROUNDS
// run: 2 300
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool sleeps, over;
static long rounds;
static uint64_t sum;

static void *sleeper(void *unused) {
    ok(pthread_mutex_lock(&lock));
    sleeps = true;
    ok(pthread_cond_broadcast(&changed));
    while (!over) ok(pthread_cond_wait(&changed, &lock));
    ok(pthread_mutex_unlock(&lock));
    return unused;
}

static void *worker(void *unused) {
    uint64_t bytes[128];
    for (long i = 0; i < rounds; i++) {
        must(syscall(SYS_getrandom, bytes, sizeof bytes, 0));
        ok(pthread_mutex_lock(&lock));
        for (unsigned k = 0; k < 128; k++) sum = mix(sum + bytes[k]);
        if (i % 8 == 0) say("%llu\n", (unsigned long long)sum);
        ok(pthread_mutex_unlock(&lock));
    }
    return unused;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 2);
    rounds = number(argc, argv, 2, 1000);
    pthread_t asleep = start(sleeper, NULL), all[16];
    ok(pthread_mutex_lock(&lock));
    while (!sleeps) ok(pthread_cond_wait(&changed, &lock));
    ok(pthread_mutex_unlock(&lock));
    for (long i = 0; i < threads; i++) all[i] = start(worker, NULL);
    for (long i = 0; i < threads; i++) finish(all[i]);
    ok(pthread_mutex_lock(&lock));
    over = true;
    ok(pthread_cond_broadcast(&changed));
    ok(pthread_mutex_unlock(&lock));
    finish(asleep);
    say("end: %llu\n", (unsigned long long)sum);
}
