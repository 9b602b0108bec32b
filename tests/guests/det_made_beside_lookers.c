// A thread that makes others goes on beside them, and maps their stacks, while they find out which of their pages they have written: that must not
// lose any. Each thread has words on its stack that it wrote in a phase, and that it looks at after its first turns.
#include "guest.h"

#define THREADS 48

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t order;

static void *works(void *p) {
    volatile uint64_t kept[3000];
    for (int i = 0; i < 3000; i++) kept[i] = mix((uintptr_t)p + i);
    for (int n = 0; n < 3; n++) {
        ok(pthread_mutex_lock(&lock));
        order = mix(order + (uintptr_t)p);
        ok(pthread_mutex_unlock(&lock));
        for (int i = 0; i < 3000; i++) expect(kept[i] == mix((uintptr_t)p + i));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(works, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    say("order %lu\n", order);
}
