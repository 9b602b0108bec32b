// Numbered lines from several threads in turn, for ever (or up to a number): what a torn trace replays is a beginning of it.
// run: 2000
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long line, last;

static void *body(void *unused) {
    (void)unused;
    for (;;) {
        ok(pthread_mutex_lock(&lock));
        if (last && line >= last) break;
        say("line %ld\n", ++line);
        ok(pthread_mutex_unlock(&lock));
    }
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(int argc, char **argv) {
    last = number(argc, argv, 1, 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(body, NULL);
    for (int i = 0; i < 3; i++) finish(threads[i]);
}
