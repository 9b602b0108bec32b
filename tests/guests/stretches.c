// Names stretches of its run (include/reprise.h): one within another, in threads, one that is still open when it ends.
// flags: -O0 -I../../include
// run:
#include "guest.h"
#include "reprise.h"

static int sum;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void work(int n) {
    ok(pthread_mutex_lock(&lock));
    sum += n;
    ok(pthread_mutex_unlock(&lock));
    sched_yield();
}

static void *body(void *which) {
    reprise_begin((long)which == 1 ? "thread one" : "thread two");
    work((int)(long)which);
    reprise_end();
    return NULL;
}

int main(void) {
    errno = 7;
    reprise_begin("load");
    expect(errno == 7);
    work(10);
    reprise_begin("parse: \xc3\xa4");
    work(20);
    reprise_end();
    work(30);
    reprise_end();
    // Nothing is open.
    reprise_end();
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) threads[i] = start(body, (void *)(i + 1));
    for (int i = 0; i < 2; i++) finish(threads[i]);
    reprise_begin("rest");
    say("sum %d\n", sum);
    return 0;
}
