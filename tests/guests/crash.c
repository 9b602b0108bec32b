// Programs that end by a signal, in every way, alone or with other threads at work.
// variant: static -static
// run: segv => SIGSEGV
// run: segv-code => SIGSEGV
// run: segv-noncanonical => SIGSEGV
// run: fpe => SIGFPE
// run: abort => SIGABRT
// run: ill => SIGILL
// run: bus => SIGBUS
// run: trap => SIGTRAP
// run: term => SIGTERM
// run: kill => SIGKILL
// run: alarm => SIGALRM
// run: pipe => SIGPIPE
// run: realtime => SIGRTMIN
// run: handler => SIGSEGV
// run: blocked => SIGSEGV
// run: overflow => SIGSEGV
// run: thread => SIGSEGV
#include "guest.h"
#include <sys/resource.h>

static int ends[2];

static void recurse(int number) {
    (void)number;
    *(volatile int *)16 = 1;
}

static void *works(void *unused) {
    char c;
    if (unused) expect(read(ends[0], &c, 1) == 99);
    for (;;) burn(1000);
    return NULL;
}

static void *crashes(void *steps) {
    burn((unsigned long)steps);
    *(volatile int *)24 = 1;
    return NULL;
}

__attribute__((noinline)) static int overflow(volatile char *above) {
    volatile char frame[1000];
    frame[0] = above[0];
    if (frame[0] == 99) return 0;
    return overflow(frame) + frame[0];
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "segv";
    must(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    must(pipe(ends));
    say("about to end by %lu at %ld\n", hash_bytes(way, strlen(way)) % 1000, now_ns(CLOCK_MONOTONIC));
    volatile int zero = 0;
    if (!strcmp(way, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(way, "segv-code")) ((void (*)(void))0x1000)();
    if (!strcmp(way, "segv-noncanonical")) *(volatile int *)0xdead000000000000ul = 1;
    if (!strcmp(way, "fpe")) return 1000 / zero;
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "ill")) __asm__ volatile("ud2");
    if (!strcmp(way, "trap")) __asm__ volatile("int3");
    if (!strcmp(way, "term")) kill(getpid(), SIGTERM);
    if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(way, "pipe")) {
        close(ends[0]);
        return write(ends[1], "x", 1) == 1;
    }
    if (!strcmp(way, "realtime")) kill(getpid(), SIGRTMIN);
    if (!strcmp(way, "bus")) {
        char name[] = "busXXXXXX";
        int fd = must(mkstemp(name));
        must(unlink(name));
        must(ftruncate(fd, 4096));
        char *p = (char *)must(mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0));
        return ((volatile char *)p)[5000];
    }
    if (!strcmp(way, "alarm")) {
        must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 3000}, NULL));
        for (;;) burn(1000);
    }
    if (!strcmp(way, "handler")) {
        signal(SIGSEGV, recurse);
        recurse(0);
    }
    if (!strcmp(way, "blocked")) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        recurse(0);
    }
    if (!strcmp(way, "overflow")) return overflow((volatile char *)&zero);
    if (!strcmp(way, "thread") || !strcmp(way, "late")) {
        start(works, NULL);
        start(works, argv);
        start(crashes, (void *)(way[0] == 'l' ? 1000000000ul : 100000ul));
        for (;;) pause();
    }
    say("still alive\n");
    return 98;
}
