// Signals at a high rate hit every kind of moment: system calls, time, library functions, faults, thread starts. Nothing is lost or doubled.
// run: 3000
#include "guest.h"

static volatile sig_atomic_t ticks;
static volatile uint64_t order;

static void handler(int number) {
    (void)number;
    ticks++;
    order = mix(order + ticks);
    int saved = errno;
    getppid();
    errno = saved;
}

static void *nothing(void *p) {
    return p;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 3000);
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL));
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 300}, {.tv_usec = 300}}, NULL));
    int ends[2];
    must(pipe(ends));
    char a[3000], b[3000];
    uint64_t x = 0;
    for (long i = 0; i < rounds; i++) {
        memset(a, (char)i, sizeof a);
        memcpy(b, a, sizeof b);
        expect(memcmp(a, b, sizeof a) == 0);
        expect(write(ends[1], a, 100) == 100);
        expect(read(ends[0], b, 100) == 100);
        x = mix(x + now_ns(CLOCK_MONOTONIC));
        free(malloc(i % 3000 + 1));
        if (i % 100 == 0) finish(start(nothing, NULL));
        if (i % 50 == 0) {
            char *p = (char *)must(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            p[40000] = 1;
            must(munmap(p, 65536));
        }
        fails(ENOENT, open("no such file", O_RDONLY));
    }
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    say("%d ticks, order %lu, times %lu\n", ticks, order, x);
}
