// A thread that looked after another one, and has the program to itself again: what the engine does for the others ends none of its waits.
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void *yields(void *unused) {
    for (int i = 0; i < 10; i++) sched_yield();
    return unused;
}

int main(void) {
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start(yields, NULL);
        yields(NULL);
        finish(thread);
        ok(pthread_mutex_lock(&lock));
        int64_t at = now_ns(CLOCK_REALTIME) + 30000000;
        struct timespec end = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        expect(pthread_cond_timedwait(&condition, &lock, &end) == ETIMEDOUT);
        ok(pthread_mutex_unlock(&lock));
    }
    say("nobody woke it\n");
}
