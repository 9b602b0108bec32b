// Missed signal: a condition is waited for without a word that says whether it holds already.
#include "fault.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static void *body(void *p) {
    work(3000000);
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&told);
    pthread_mutex_unlock(&lock);
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL);
    work(30000);
    pthread_mutex_lock(&lock);
    struct timespec limit = in_ms(1500);
    int r = pthread_cond_timedwait(&told, &lock, &limit);
    pthread_mutex_unlock(&lock);
    finish(a);
    if (r == ETIMEDOUT) FOUND("the signal came before the wait\n");
    say("the signal came in time\n");
}
