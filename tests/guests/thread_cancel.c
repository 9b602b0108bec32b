// Cancelled threads: in a read that blocks, in a condition wait, asynchronously in a loop; their cleanup handlers run.
#include "guest.h"

static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static _Atomic int cleaned;
static volatile uint64_t loops;
static tally looping, asked;

static void cleanup(void *p) { cleaned += (intptr_t)p; }

static void *in_read(void *unused) {
    (void)unused;
    char c;
    pthread_cleanup_push(cleanup, (void *)1);
    expect(read(ends[0], &c, 1) == 99);
    pthread_cleanup_pop(1);
    return NULL;
}

static void unlock(void *unused) {
    (void)unused;
    cleaned += 10;
    ok(pthread_mutex_unlock(&lock));
}

static void *in_wait(void *unused) {
    ok(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, unused);
    for (;;) ok(pthread_cond_wait(&condition, &lock));
    pthread_cleanup_pop(1);
    return NULL;
}

static void *in_loop(void *unused) {
    int old;
    (void)unused;
    ok(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    count_up(&looping);
    for (;;) loops++;
    return NULL;
}

static void *testing(void *unused) {
    (void)unused;
    int old;
    ok(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    count_up(&looping);
    while (!counted(&asked)) sched_yield();
    pthread_testcancel();
    cleaned += 100;
    ok(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    pthread_testcancel();
    return NULL;
}

static void cancel(pthread_t thread) {
    ok(pthread_cancel(thread));
    expect(finish(thread) == PTHREAD_CANCELED);
}

int main(void) {
    must(pipe(ends));
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start(in_read, NULL);
        if (i) sched_yield();
        cancel(thread);
        thread = start(in_wait, NULL);
        if (i) sched_yield();
        cancel(thread);
        ok(pthread_mutex_lock(&lock));
        ok(pthread_mutex_unlock(&lock));
    }
    // A thread cancelled before its first step has nothing to clean up.
    int after_waits = cleaned;
    pthread_t thread = start(in_loop, NULL);
    while (counted(&looping) != 1) sched_yield();
    cancel(thread);
    thread = start(testing, NULL);
    while (counted(&looping) != 2) sched_yield();
    ok(pthread_cancel(thread));
    count_up(&asked);
    expect(finish(thread) == PTHREAD_CANCELED);
    expect(cleaned == after_waits + 100);
    say("cleaned up %d after %lu loops\n", (int)cleaned, (unsigned long)loops);
}
