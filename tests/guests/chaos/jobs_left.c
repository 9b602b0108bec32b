// A pool that is stopped too early: workers look at the flag before they look at the queue, and leave jobs behind.
#include "fault.h"
#define JOBS 20
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long jobs;
static volatile bool stop;
static void *worker(void *p) {
    while (!stop) {
        pthread_mutex_lock(&lock);
        if (jobs > 0) jobs--;
        pthread_mutex_unlock(&lock);
        work(50);
        sched_yield();
    }
    return p;
}
int main(void) {
    for (long i = 0; i < 10; i++) {
        stop = false;
        pthread_t a = start(worker, NULL);
        for (long k = 0; k < JOBS; k++) {
            pthread_mutex_lock(&lock);
            jobs++;
            pthread_mutex_unlock(&lock);
        }
        // Time enough, one would think.
        work(200000);
        for (int k = 0; k < 2 * JOBS; k++) sched_yield();
        stop = true;
        finish(a);
        if (jobs != 0) FOUND("%ld jobs are left\n", jobs);
    }
    say("no job left\n");
}
