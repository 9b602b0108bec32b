// One thread that uses memory well, or badly in the way that its argument says: what a sanitizer reports is replayed.
#include "guest.h"

static volatile int zero;

static int overflow(void) {
    volatile char *p = malloc(24 + zero);
    p[24 + zero] = 1;
    int r = p[24 + zero];
    free((void *)p);
    return r;
}

static int after_free(void) {
    int *p = malloc(64);
    p[3] = 7;
    free(p);
    return ((volatile int *)p)[3];
}

static int undefined(void) {
    int shift = 40 + zero, big = INT_MAX - zero;
    return (1 << shift) + (big + 1 + zero);
}

static int uninitialised(void) {
    int *p = malloc(256);
    __asm__ volatile("" : "+r"(p));
    if (p[zero + 5] > 3) getppid();
    free(p);
    return 0;
}

static int leak(void) {
    char *volatile p = malloc(1234);
    p[0] = 1;
    p = NULL;
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "clean";
    // Work first, so that a shadow is in use.
    uint64_t sum = 0;
    for (int i = 1; i < 2000; i++) {
        unsigned char *p = malloc(i);
        memset(p, i, i);
        for (int k = 0; k < i; k += 7) sum = mix(sum ^ p[k]);
        free(p);
    }
    char *big = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(big != MAP_FAILED);
    big[12345678] = 1;
    must(munmap(big, 64 << 20));
    say("sum %lx, pid %d, at %ld\n", sum, getpid(), now_ns(CLOCK_MONOTONIC));
    int r = 0;
    if (strcmp(how, "overflow") == 0) r = overflow();
    if (strcmp(how, "after_free") == 0) r = after_free();
    if (strcmp(how, "undefined") == 0) r = undefined();
    if (strcmp(how, "uninitialised") == 0) r = uninitialised();
    if (strcmp(how, "leak") == 0) r = leak();
    say("%s: goes on %d\n", how, r == 12345);
    return 0;
}
