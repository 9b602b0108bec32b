// Initialisation that is checked twice: the pointer can be seen before what it points to is there.
#include "fault.h"
typedef struct {
    volatile long value;
} Thing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Thing *volatile thing;
static pthread_barrier_t begin;
static Thing *get(void) {
    if (!thing) {
        pthread_mutex_lock(&lock);
        if (!thing) {
            thing = calloc(1, sizeof *thing);
            work(20);
            thing->value = 7;
        }
        pthread_mutex_unlock(&lock);
    }
    return thing;
}
static void *body(void *p) {
    for (long i = 0; i < 100; i++) {
        pthread_barrier_wait(&begin);
        work(200);
        long value = get()->value;
        if (value != 7) FOUND("a value of %ld\n", value);
        pthread_barrier_wait(&begin);
        if (p) free(thing), thing = NULL;
    }
    return NULL;
}
int main(void) {
    pthread_barrier_init(&begin, NULL, 2);
    pthread_t a = start(body, NULL), b = start(body, &lock);
    finish(a), finish(b);
    say("always initialised\n");
}
