// Racey (Hill and Xu): threads exchange values by nothing but data races, and mix what they saw into a signature, which tells any
// other order of any two accesses. Under `reprise run` it is the same in every run.
// run: 2
// run: 4
#include "guest.h"

#define WORDS 64
#define ROUNDS 2000
#define THREADS 16

static struct {
    unsigned value;
    unsigned pad[15];
} shared_words[WORDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned turns;

static unsigned blend(unsigned i, unsigned j) {
    return i * 1103515245u + j * 12345u + (i >> 7) + (j << 3) + 1;
}

static void *race(void *arg) {
    unsigned me = (unsigned)(uintptr_t)arg;
    unsigned number = me;
    for (int i = 0; i < ROUNDS; i++) {
        number = shared_words[number % WORDS].value;
        volatile unsigned *to = &shared_words[blend(number, me) % WORDS].value;
        *to = blend(*to, number);
        if (i % 97 == 0) {
            pthread_mutex_lock(&lock);
            turns = blend(turns, me);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    expect(threads > 0 && threads <= THREADS);
    for (unsigned i = 0; i < WORDS; i++) shared_words[i].value = blend(i, 7);
    pthread_t thread[THREADS];
    for (int i = 0; i < threads; i++) expect(pthread_create(&thread[i], NULL, race, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < threads; i++) expect(pthread_join(thread[i], NULL) == 0);
    unsigned signature = turns;
    for (unsigned i = 0; i < WORDS; i++) signature = blend(signature, shared_words[i].value);
    say("signature %u\n", signature);
    return 0;
}
