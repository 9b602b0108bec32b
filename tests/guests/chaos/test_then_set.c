// A lock of one's own, whose test and set are two steps.
#include "fault.h"
static volatile long locked, inside;
static void *body(void *p) {
    for (long i = 0; i < 10000; i++) {
        while (locked) sched_yield();
        locked = 1;
        if (__sync_fetch_and_add(&inside, 1) != 0) FOUND("two threads are in the section\n");
        work(10);
        __sync_fetch_and_sub(&inside, 1);
        locked = 0;
        work(100);
    }
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, NULL);
    finish(a), finish(b);
    say("one at a time\n");
}
