// Makes a system call at one site in a loop, and prints the nanoseconds of one round. The site is a `mov $nr,%eax` with the `syscall`
// right behind it, as libc has them, so that recording rewrites it.
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

static long parent(void) {
    long result;
    __asm__ volatile("mov %1,%%eax\n\tsyscall" : "=&a"(result) : "i"(SYS_getppid) : "rcx", "r11", "memory");
    return result;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10000000;
    // A site is rewritten after it was seen a few times: not part of what is measured.
    for (int i = 0; i < 100; i++) {
        parent();
    }
    double begun = now();
    for (long i = 0; i < rounds; i++) {
        parent();
    }
    printf("%.3f\n", (now() - begun) / rounds);
}
