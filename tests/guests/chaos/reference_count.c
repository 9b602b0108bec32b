// A reference count that is not atomic: an object is ended twice, or never.
#include "fault.h"
static volatile long references, ended;
static pthread_barrier_t round_begins;
static void *body(void *p) {
    for (long i = 0; i < 300; i++) {
        pthread_barrier_wait(&round_begins);
        work(100);
        if (--references == 0) ended++;
        pthread_barrier_wait(&round_begins);
        if (p) {
            if (ended != 1) FOUND("ended %ld times\n", ended);
            references = 2, ended = 0;
        }
    }
    return NULL;
}
int main(void) {
    references = 2;
    pthread_barrier_init(&round_begins, NULL, 2);
    pthread_t a = start(body, NULL), b = start(body, (void *)&ended);
    finish(a), finish(b);
    say("each ended once\n");
}
