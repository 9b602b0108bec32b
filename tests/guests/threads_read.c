// Threads read one file again and again: each its part by offset, and all together, under a lock, what comes next by position. The sum of a round, which is
// said after it, follows from the file alone. Usage: threads_read FILE ROUNDS [THREADS]; with 0 rounds it goes on until its input ends.
// run: /bin/bash 3
// run: /bin/bash 3 1
#include "guest.h"

#include <poll.h>

#define PIECE 65536
#define MOST 16

static const char *path;
static size_t size;
static int threads, together;
static bool over;
static uint64_t sums[MOST];
static pthread_barrier_t begin, end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Of a piece, wherever it comes among the others.
static uint64_t sum_of(const unsigned char *piece, ssize_t n) {
    uint64_t sum = n;
    for (ssize_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, piece + i, 8);
        sum = (sum << 7 | sum >> 57) + word;
    }
    return mix(sum);
}

static uint64_t read_all(int fd, long me, unsigned char *piece) {
    uint64_t sum = 0;
    ssize_t n;
    for (size_t at = me * PIECE; at < size; at += threads * PIECE) {
        n = must(pread(fd, piece, PIECE, at));
        expect(n > 0);
        sum += sum_of(piece, n);
    }
    do {
        ok(pthread_mutex_lock(&lock));
        n = must(read(together, piece, PIECE));
        ok(pthread_mutex_unlock(&lock));
        if (n > 0) sum += sum_of(piece, n);
    } while (n > 0);
    return sum;
}

static void *body(void *which) {
    long me = (intptr_t)which;
    int fd = must(open(path, O_RDONLY));
    unsigned char *piece = (unsigned char *)malloc(PIECE);
    expect(piece != NULL);
    for (;;) {
        pthread_barrier_wait(&begin);
        if (over) break;
        sums[me] = read_all(fd, me, piece);
        pthread_barrier_wait(&end);
    }
    free(piece);
    must(close(fd));
    return NULL;
}

static bool goes_on(long round, long rounds) {
    if (rounds > 0) return round < rounds;
    struct pollfd input = {0, POLLIN, 0};
    return must(poll(&input, 1, 0)) == 0;
}

int main(int argc, char **argv) {
    pthread_t all[MOST];
    struct stat st;
    expect(argc > 2);
    path = argv[1];
    long rounds = number(argc, argv, 2, 1);
    threads = number(argc, argv, 3, 3);
    expect(threads >= 1 && threads <= MOST);
    together = must(open(path, O_RDONLY));
    must(fstat(together, &st));
    size = st.st_size;
    ok(pthread_barrier_init(&begin, NULL, threads + 1));
    ok(pthread_barrier_init(&end, NULL, threads + 1));
    for (long i = 0; i < threads; i++) all[i] = start(body, (void *)i);
    for (long round = 0; goes_on(round, rounds); round++) {
        must(lseek(together, 0, SEEK_SET));
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        uint64_t sum = 0;
        for (int i = 0; i < threads; i++) sum += sums[i];
        say("round %ld: %lu\n", round, sum);
    }
    over = true;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < threads; i++) finish(all[i]);
    must(close(together));
}
