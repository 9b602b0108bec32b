// Threads race by plain memory on which way they go: which of two locks they take, how often, whether they wait for a flag that another one sets without any lock. So what one of
// them does next isn't what its log says, when the epoch is run again, and a copy can't come to its end.
// run: 2 200
#include "guest.h"

static volatile long which, flag;
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t barrier;
static long taken[2];
static long rounds;

static void *body(void *number) {
    long me = (long)number;
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 100000; k++) which += me + 1;
        int one = which >> 3 & 1;
        ok(pthread_mutex_lock(&locks[one]));
        taken[one]++;
        ok(pthread_mutex_unlock(&locks[one]));
        if (i % 50 == 10) {
            if (me == 0) flag = i;
            else while (flag < i) {}
        }
        long seen = which;
        while (which - seen < 1000) which += 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 2);
    rounds = number(argc, argv, 2, 200);
    ok(pthread_barrier_init(&barrier, NULL, (unsigned)count));
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < count; i++) finish(threads[i]);
    expect(taken[0] + taken[1] == count * rounds);
    // What the race came to is told to nobody, unless that is wanted.
    if (argc > 3) printf("%ld %ld %ld\n", taken[0], taken[1], (long)which);
    printf("done\n");
    return 0;
}
