// Threads race by plain memory on which of two locks they take and how often, and make calls meanwhile that others can see: they write lines, and send themselves words through a pipe. A copy that runs
// the epoch again comes to other locks; what it can't change is what was written.
// run: 2 100
#include "guest.h"

static volatile long which;
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t barrier;
static long taken[2];
static long rounds;

static void *body(void *number) {
    long me = (long)number;
    int ends[2];
    must(pipe(ends));
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 20000; k++) which += me + 1;
        int one = which >> 3 & 1;
        ok(pthread_mutex_lock(&locks[one]));
        taken[one]++;
        ok(pthread_mutex_unlock(&locks[one]));
        long word = me << 32 | i, back = 0;
        must(write(ends[1], &word, sizeof word));
        must(read(ends[0], &back, sizeof back));
        expect(back == word);
        if (i % 20 == 10) say("thread %ld in round %ld\n", me, i);
    }
    must(close(ends[0]));
    must(close(ends[1]));
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 2);
    rounds = number(argc, argv, 2, 100);
    ok(pthread_barrier_init(&barrier, NULL, (unsigned)count));
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < count; i++) finish(threads[i]);
    say("done\n");
    return 0;
}
