// Lost wake-up: the flag is set and told without the lock, so that it may happen between the waiter's look and its wait.
#include "fault.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static volatile long flag;
static void *body(void *p) {
    for (long i = 1; i <= 200; i++) {
        work(2000);
        flag = i;
        pthread_cond_signal(&told);
        while (flag == i) sched_yield();
    }
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL);
    for (long i = 1; i <= 200; i++) {
        pthread_mutex_lock(&lock);
        while (flag != i) {
            work(100);
            struct timespec limit = in_ms(1000);
            if (pthread_cond_timedwait(&told, &lock, &limit) == ETIMEDOUT && flag == i) FOUND("a wake-up was lost in round %ld\n", i);
        }
        pthread_mutex_unlock(&lock);
        flag = 0;
    }
    finish(a);
    say("all wake-ups came\n");
}
