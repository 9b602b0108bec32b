// Published too early: a queue's index says that an element is there before it is.
#include "fault.h"
#define ITEMS 20000
static volatile long queue[ITEMS], filled;
static void *producer(void *p) {
    for (long i = 0; i < ITEMS; i++) {
        filled = i + 1;
        queue[i] = i + 1;
        work(100);
    }
    return p;
}
int main(void) {
    pthread_t a = start(producer, NULL);
    for (long i = 0; i < ITEMS;) {
        if (i == filled) {
            work(50);
            continue;
        }
        if (queue[i] != i + 1) FOUND("element %ld isn't there\n", i);
        i++;
    }
    finish(a);
    say("all there\n");
}
