// Waits for another thread by looking at a word of memory again and again, in code without any call. The other one has not begun to work before.
#include "guest.h"
#include <semaphore.h>

static volatile int go;
static sem_t begin;

static void *sets(void *unused) {
    must(sem_wait(&begin));
    go = 1;
    return unused;
}

int main(void) {
    must(sem_init(&begin, 0, 0));
    pthread_t thread = start(sets, NULL);
    say("looking\n");
    must(sem_post(&begin));
    while (!go) continue;
    finish(thread);
    say("seen\n");
}
