// Two locks for one value: each thread has a lock, but not the same.
#include "fault.h"
#define ROUNDS 6000
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static volatile long sum;
static void *body(void *p) {
    for (long i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(p);
        sum++;
        pthread_mutex_unlock(p);
        work(200);
    }
    return NULL;
}
int main(void) {
    pthread_t a = start(body, &locks[0]), b = start(body, &locks[1]);
    finish(a), finish(b);
    if (sum != 2 * ROUNDS) FOUND("%ld updates lost\n", 2 * ROUNDS - sum);
    say("nothing lost\n");
}
