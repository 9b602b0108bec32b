// Use after the end of a thread: what a thread has shown to others lies on its stack.
#include "fault.h"
static long *volatile shown;
static void *body(void *p) {
    volatile long value[64];
    for (int i = 0; i < 64; i++) value[i] = 7;
    shown = (long *)value;
    work(20000);
    shown = NULL;
    // What comes to lie there next.
    for (int i = 0; i < 64; i++) value[i] = -1;
    return p;
}
int main(void) {
    for (long i = 0; i < 100; i++) {
        pthread_t a = start(body, NULL);
        for (long k = 0; k < 200; k++) {
            long *there = shown;
            if (there) {
                work(5);
                if (*there != 7) FOUND("%ld is left of it\n", *there);
            }
            work(100);
        }
        finish(a);
    }
    say("always there\n");
}
