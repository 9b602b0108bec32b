// Threads add to counters on many pages without a lock, for some seconds, and do between that what a recording in epochs must take back, or must not do, when an epoch comes to
// something else in its copy: locks, conditions, barriers, blocks of memory small and large, reads of a pipe, sleeps. What they do doesn't depend on what the additions come to, which is told when all
// have ended, behind a mapping of a file.
// run: 3 60
#include "guest.h"
#include <time.h>

enum { PAGES = 64, WORDS = PAGES * 4096 / sizeof(long) };

static volatile long counters[WORDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long rounds, held, woken;
static int ends[2];

static void add(long round) {
    for (long i = 0; i < 400000; i++) counters[(i * 7 + round * 31) % WORDS] += 1;
}

// Waits until another thread has come here as often.
static void meet(long times, long count) {
    ok(pthread_mutex_lock(&mutex));
    woken++;
    ok(pthread_cond_broadcast(&changed));
    while (woken < times * count) ok(pthread_cond_wait(&changed, &mutex));
    ok(pthread_mutex_unlock(&mutex));
}

static long count;

static void *body(void *number) {
    long me = (long)number;
    char *kept = NULL;
    for (long i = 0; i < rounds; i++) {
        add(i + me);
        ok(pthread_mutex_lock(&mutex));
        held++;
        ok(pthread_mutex_unlock(&mutex));
        size_t size = i % 5 == 0 ? 3 << 20 : 100 + (size_t)(i * 37 + me) % 2000;
        char *block = malloc(size);
        memset(block, (int)me + 1, size);
        expect(block[size - 1] == (char)(me + 1));
        if (kept) expect(kept[99] == (char)(me + 1));
        free(kept);
        kept = block;
        if (i % 11 == me) {
            char c;
            expect(must(read(ends[0], &c, 1)) == 1 && c == 'x');
            expect(must(write(ends[1], "x", 1)) == 1);
        }
        if (i % 13 == me) nanosleep(&(struct timespec){0, 2000000}, NULL);
        if (i % 7 == 3) pthread_barrier_wait(&barrier);
        if (i % 9 == 5) meet(i / 9 + 1, count);
    }
    free(kept);
    return NULL;
}

int main(int argc, char **argv) {
    count = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 60);
    must(pipe(ends));
    expect(must(write(ends[1], "xx", 2)) == 2);
    ok(pthread_barrier_init(&barrier, NULL, (unsigned)count));
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < count; i++) finish(threads[i]);
    expect(held == count * rounds);
    int fd = must(open("/proc/self/exe", O_RDONLY));
    expect(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    long sum = 0;
    for (long i = 0; i < WORDS; i++) sum = sum * 3 + counters[i];
    // A replay compares the arguments of calls.
    expect(lseek(-1, sum & 0x7fffffffffffffff, SEEK_SET) == -1 && errno == EBADF);
    say("added\n");
}
