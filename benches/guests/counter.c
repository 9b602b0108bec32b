// Two threads count to the given number, each in a loop without any system call. Built with -O0, so that the counters live in memory:
// while recording, only a cut in the middle of the loop lets the other thread run.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long rounds = 1000000000;

static void *count(void *unused) {
    (void)unused;
    unsigned long counter = 0;
    while (counter < rounds) {
        counter++;
    }
    return (void *)counter;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        rounds = strtoul(argv[1], NULL, 10);
    }
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL)) {
        return 1;
    }
    void *mine = count(NULL), *others;
    pthread_join(other, &others);
    printf("%lu\n", (unsigned long)mine + (unsigned long)others);
}
