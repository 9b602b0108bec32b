// Two threads write to the same variables between the same two synchronisation points, and to others in good order.
//   det_conflicts ROUNDS
// run: 3
#include "guest.h"

static long both, mine[2], locked, handed, *unnamed;
static char neighbours[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long rounds;

static void __attribute__((noinline)) meet(void) {
    pthread_barrier_wait(&barrier);
}

static void *body(void *which) {
    uintptr_t me = (uintptr_t)which;
    long *in_heap = malloc(sizeof *in_heap);
    for (long i = 0; i < rounds; i++) {
        // Conflicts.
        both = (long)(me + 1) * 1000 + i;
        *unnamed = (long)(me + 1) * 0x0101010101010101 * (i % 100 + 1);
        // None: nobody else writes there.
        mine[me] = i + 1;
        neighbours[me] = (char)(i + 1);
        *in_heap = i;
        ok(pthread_mutex_lock(&lock));
        locked += 1;
        ok(pthread_mutex_unlock(&lock));
        meet();
        if ((long)me == i % 2) handed += 1;
        meet();
    }
    free(in_heap);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 3);
    expect((unnamed = malloc(sizeof *unnamed)) != NULL);
    ok(pthread_barrier_init(&barrier, NULL, 2));
    pthread_t other = start(body, (void *)1);
    body(NULL);
    finish(other);
    say("%ld %ld %ld, %ld %ld, %d %d\n", both, locked, handed, mine[0], mine[1], neighbours[0], neighbours[1]);
}
