// Threads add to a counter without a lock, what it came to says which lock each takes next, and then each maps memory, which all look at from then on. A copy that runs an epoch again
// comes to other locks, and maps the memory by itself: where the program has none of its own, nor the runtime of the program.
// run: 3 40
#include "guest.h"
#include <sys/mman.h>

enum { MOST = 8, BYTES = 2 << 20, STEP = 1 << 15 };
static volatile long counter;
static long count, rounds;
static pthread_mutex_t locks[4];
static pthread_barrier_t meet;
static unsigned char *volatile pieces[MOST][200];

static uint64_t look(long round) {
    uint64_t sum = 0;
    for (long i = 0; i < count; i++) {
        for (long r = 0; r <= round; r++) sum = mix(sum + pieces[i][r][r * STEP % BYTES]);
    }
    return sum;
}

static void *body(void *p) {
    long me = (intptr_t)p;
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < 3000; i++) counter = counter + 1;
        pthread_mutex_t *lock = &locks[counter / 7 % 4];
        pthread_mutex_lock(lock);
        size_t first = r % 2 == 0 ? BYTES : BYTES / 2;
        unsigned char *piece = mmap(NULL, first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(piece != MAP_FAILED);
        // Every other one grows, in its place or elsewhere.
        if (first < BYTES) piece = mremap(piece, first, BYTES, MREMAP_MAYMOVE);
        expect(piece != MAP_FAILED);
        for (long at = 0; at < BYTES; at += STEP) piece[at] = counter & 0xff;
        pthread_mutex_unlock(lock);
        pieces[me][r] = piece;
        pthread_barrier_wait(&meet);
        if (me == 0) say("%lu\n", (unsigned long)look(r));
        pthread_barrier_wait(&meet);
    }
    return NULL;
}

int main(int argc, char **argv) {
    count = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 40);
    expect(count <= MOST && rounds <= 200);
    for (int i = 0; i < 4; i++) pthread_mutex_init(&locks[i], NULL);
    pthread_barrier_init(&meet, NULL, count);
    pthread_t threads[MOST];
    for (intptr_t i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < count; i++) finish(threads[i]);
}
