// A thread unlocks and at once locks again, until another one, which wants the lock too, has had it: computing inside, making calls
// inside, sleeping inside.
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool had;

static void computes(void) {
    burn(20000);
}

static void calls(void) {
    burn(20000);
    must(getppid());
}

static void sleeps(void) {
    struct timespec moment = {0, 20000};
    must(nanosleep(&moment, NULL));
}

static void (*const bodies[])(void) = {computes, calls, sleeps};

static void *keeps(void *body) {
    bool over = false;
    while (!over) {
        ok(pthread_mutex_lock(&lock));
        bodies[(uintptr_t)body]();
        over = had;
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void *wants(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&lock));
    had = true;
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void) {
    for (uintptr_t body = 0; body < 3; body++) {
        had = false;
        pthread_t keeper = start(keeps, (void *)body);
        pthread_t other = start(wants, NULL);
        finish(other);
        finish(keeper);
        say("body %d: both had it\n", (int)body);
    }
}
