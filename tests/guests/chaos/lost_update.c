// Lost update: two threads add to a word by a load and a store.
#include "fault.h"
#define ROUNDS 60000
static volatile long sum;
static void *body(void *p) {
    for (long i = 0; i < ROUNDS; i++) {
        sum++;
        work(20);
    }
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, NULL);
    finish(a), finish(b);
    if (sum != 2 * ROUNDS) FOUND("%ld updates lost\n", 2 * ROUNDS - sum);
    say("nothing lost\n");
}
