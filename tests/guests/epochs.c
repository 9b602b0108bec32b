// Threads that live long, and do a little of everything in small steps: locks that others have, calls that wait for others, memory that comes and goes, clocks.
// With "races" they also change a word that no lock protects.
// Functions are bound at the beginning: ld.so would save the vector registers on the stack with what is in use of them (XSAVEC), which is nobody's order.
// flags: -Wl,-z,now
// run: 3 400
// run: 3 400 races
#include "guest.h"

enum { WORDS = 512 };

static pthread_mutex_t locks[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static uint64_t protected[3][WORDS];
static volatile uint64_t unprotected;
static int rounds, races, threads, ends[8][2];

static void *works(void *p) {
    int me = (int)(intptr_t)p, next = (me + 1) % threads;
    uint64_t mine = me + 1;
    double sum = me;
    for (int i = 0; i < rounds; i++) {
        int which = mine % 3;
        ok(pthread_mutex_lock(&locks[which]));
        uint64_t *word = &protected[which][mine % WORDS];
        *word = mix(*word + mine);
        mine = mix(mine + *word);
        ok(pthread_mutex_unlock(&locks[which]));
        if (races) {
            for (int n = 0; n < 300; n++) unprotected = unprotected * 3 + 1 + mine % 2;
            if (i % 16 == 0) mine += unprotected;
        }
        for (int n = 0; n < 200; n++) sum += 1.0 / (1 + (mine + n) % 1000);
        if (i % 8 == 0) {
            // Each sends to the next, and waits for the one before.
            must(write(ends[next][1], &mine, sizeof mine));
            uint64_t got;
            expect(read(ends[me][0], &got, sizeof got) == sizeof got);
            mine += got;
        }
        if (i % 32 == 5) {
            size_t len = 4096 * (1 + mine % 4);
            char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            expect(map != MAP_FAILED);
            memset(map, me, len);
            mine += map[mine % len];
            ok(munmap(map, len));
        }
        if (i % 16 == 3) {
            char *some = malloc(mine % 3000 + 1);
            some[0] = me;
            free(some);
        }
        if (i % 64 == 9) {
            struct timespec now;
            must(clock_gettime(CLOCK_MONOTONIC, &now));
            mine += now.tv_nsec;
        }
    }
    say("thread %d: %lu\n", me, mine + (uint64_t)sum);
    return NULL;
}

int main(int argc, char **argv) {
    threads = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 400);
    races = argc > 3;
    pthread_t list[8];
    for (int i = 0; i < threads; i++) must(pipe(ends[i]));
    for (int i = 0; i < threads; i++) list[i] = start(works, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++) finish(list[i]);
    uint64_t all = 0;
    for (int i = 0; i < 3 * WORDS; i++) all = mix(all + protected[i / WORDS][i % WORDS]);
    say("all: %lu\n", all);
}
