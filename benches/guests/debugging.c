// What the rows of the debugger are measured on: two threads that take turns at changing 16 MiB of memory, here and there, until they have used so many seconds of
// processor time together, and say how much memory they have. The rows know the names of the functions.
//   debugging SECONDS
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { THREADS = 2, WORDS = 2 << 20, NEAR = 1 << 13, CHANGES = 200000, VISITS = 20000, VISITED_EVERY = 100 };

static uint64_t table[WORDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double seconds;
static long rounds;
static volatile uint64_t seen;

__attribute__((noinline)) void visit(long i) {
    seen += i;
}

// So many false hits for a breakpoint with a condition.
__attribute__((noinline)) void visits(void) {
    for (long i = 0; i < VISITS; i++) visit(i);
}

// Where a round begins.
__attribute__((noinline)) void tick(long round) {
    seen += round;
}

static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *body(void *which) {
    uint64_t at = (uintptr_t)which;
    while (used() < seconds) {
        pthread_mutex_lock(&lock);
        tick(rounds);
        if (rounds % VISITED_EVERY == 5) visits();
        for (int i = 0; i < CHANGES; i++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            table[(rounds / 64 * NEAR + (at >> 51)) % WORDS] += at;
        }
        rounds++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atof(argv[1]) : 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, body, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld\n", usage.ru_maxrss);
    return 0;
}
