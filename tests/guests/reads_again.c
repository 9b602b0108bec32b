// Reads files from their beginnings to their ends, again and again, each by a thread of its own, in pieces of several sizes, and says a sum each time.
// Usage: reads_again FILE... ROUNDS
// run: /bin/bash 3
// run: /bin/bash /bin/sh 3
#include "guest.h"

static const size_t pieces[] = {1 << 16, 1 << 18, 1 << 16, 100000};
static long rounds;

static uint64_t sum_of(int fd, unsigned char *bytes, size_t piece) {
    uint64_t h = 1;
    ssize_t n;
    while ((n = read(fd, bytes, piece)) > 0) {
        for (ssize_t k = 0; k < n; k += 3) h = (h ^ bytes[k]) * 1099511628211u;
    }
    return h;
}

static void *body(void *argument) {
    char **file = (char **)argument;
    unsigned char *bytes = (unsigned char *)malloc(1 << 18);
    expect(bytes != NULL);
    for (long i = 0; i < rounds; i++) {
        int fd = open(*file, O_RDONLY);
        if (fd < 0) continue;
        uint64_t h = sum_of(fd, bytes, pieces[i % 4]);
        close(fd);
        say("%s %ld: %lu\n", *file, i, h);
    }
    free(bytes);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[32];
    int last = argc - 1;
    expect(last >= 2 && last <= 32);
    rounds = number(argc, argv, last, 1);
    for (int i = 2; i < last; i++) threads[i] = start(body, &argv[i]);
    body(&argv[1]);
    for (int i = 2; i < last; i++) finish(threads[i]);
}
