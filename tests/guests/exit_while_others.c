// The process ends while other threads block in every kind of call, or run, or are just being started.
// run: => 5
// run: thread => 6
// run: race => 7
#include "guest.h"
#include <poll.h>

static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t sink;
static _Atomic int there;

static void *body(void *p) {
    char c;
    there++;
    switch ((intptr_t)p) {
    case 0: expect(read(ends[0], &c, 1) == 99); break;
    case 1: pause(); break;
    case 2: pthread_mutex_lock(&lock); break;
    case 3: nanosleep(&(struct timespec){.tv_sec = 1000000}, NULL); break;
    case 4: poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1); break;
    case 5: for (;;) sink++;
    case 6: for (;;) getppid();
    case 7: for (;;) sched_yield();
    }
    return NULL;
}

static void *ends_all(void *p) {
    exit((intptr_t)p);
}

static void *short_lived(void *unused) { return unused; }

static void *starts_more(void *unused) {
    for (;;) finish(start(short_lived, unused));
    return NULL;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "main";
    must(pipe(ends));
    ok(pthread_mutex_lock(&lock));
    for (intptr_t i = 0; i < 8; i++) start(body, (void *)i);
    while (there < 8) sched_yield();
    say("all are there\n");
    if (strcmp(way, "thread") == 0) {
        start(ends_all, (void *)6);
        pause();
    }
    if (strcmp(way, "race") == 0) {
        start(starts_more, NULL);
        start(starts_more, NULL);
        usleep(1000);
        return 7;
    }
    return 5;
}
