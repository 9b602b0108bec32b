// The program lets its stack grow by more than the room there is below it, and goes on: what is mapped further below is no part of the stack. Several threads, since what
// the runtime has down there changes with them.
// run:
// run: 3
#include "guest.h"
#include <sys/resource.h>

static void *body(void *argument) {
    for (int i = 0; i < 20; i++) {
        void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(p != MAP_FAILED);
        memset(p, i, 1 << 16);
        must(munmap(p, 1 << 16));
        sched_yield();
    }
    return argument;
}

// Makes the stack grow by some pages.
static unsigned char grow(int pages) {
    volatile unsigned char page[4096];
    page[0] = (unsigned char)pages;
    return pages == 0 ? page[0] : (unsigned char)(grow(pages - 1) + page[0]);
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 0);
    struct rlimit limit;
    must(getrlimit(RLIMIT_STACK, &limit));
    // (No limit at all, where that may be had.)
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_STACK, &limit));
    pthread_t all[8];
    for (long i = 0; i < threads; i++) all[i] = start(body, NULL);
    for (int pages = 1; pages < 600; pages *= 3) {
        grow(pages);
        must(getppid());
    }
    for (long i = 0; i < threads; i++) finish(all[i]);
    say("the stack has grown: %u\n", grow(700));
    return 0;
}
