// Waits for another thread by looking at a word of memory again and again, in code without any call.
#include "guest.h"

static volatile int go;

static void *sets(void *unused) {
    go = 1;
    return unused;
}

int main(void) {
    pthread_t thread = start(sets, NULL);
    say("looking\n");
    while (!go) continue;
    finish(thread);
    say("seen\n");
}
