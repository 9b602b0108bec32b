// `if` instead of `while`: who is woken takes for granted that what it waits for is still there.
#include "fault.h"
#define ITEMS 400
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static long items, taken;
static bool over;
static void *consumer(void *p) {
    for (;;) {
        pthread_mutex_lock(&lock);
        if (items == 0 && !over) pthread_cond_wait(&filled, &lock);
        if (items == 0 && over) {
            pthread_mutex_unlock(&lock);
            return p;
        }
        items--, taken++;
        if (items < 0) FOUND("an item was taken that isn't there, after %ld\n", taken);
        pthread_mutex_unlock(&lock);
        work(200);
    }
}
int main(void) {
    pthread_t a = start(consumer, NULL), b = start(consumer, NULL);
    for (long i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&lock);
        items++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
        work(300);
    }
    pthread_mutex_lock(&lock);
    over = true;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    finish(a), finish(b);
    say("%ld taken\n", taken);
}
