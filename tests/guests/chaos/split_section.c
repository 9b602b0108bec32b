// A section that is split in two: what was read under the lock is old when it is written under the lock.
#include "fault.h"
#define ROUNDS 6000
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static long get(void) {
    pthread_mutex_lock(&lock);
    long s = sum;
    pthread_mutex_unlock(&lock);
    return s;
}
static void set(long s) {
    pthread_mutex_lock(&lock);
    sum = s;
    pthread_mutex_unlock(&lock);
}
static void *body(void *p) {
    for (long i = 0; i < ROUNDS; i++) {
        set(get() + 1);
        work(300);
    }
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, NULL);
    finish(a), finish(b);
    if (sum != 2 * ROUNDS) FOUND("%ld updates lost\n", 2 * ROUNDS - sum);
    say("nothing lost\n");
}
