// Threads that take a lock again as soon as they have given it back. The variant prints in between: with code of its own, not only when asked to.
// variant: printing -DPRINTS
// flags: -Wl,-z,now
#include "guest.h"

#define THREADS 3
#define TIMES 60

#ifdef PRINTS
#define PRINT(...) printf(__VA_ARGS__)
#else
#define PRINT(...) (void)0
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t order, racy;

static void *body(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < TIMES; i++) {
        ok(pthread_mutex_lock(&lock));
        order = order * 31 + me;
        ok(pthread_mutex_unlock(&lock));
        PRINT("%d between\n", me);
        racy = racy * 7 + me;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        threads[i] = start(body, (void *)i);
        PRINT("made %d\n", (int)i);
    }
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    printf("order %lu memory %lu\n", (unsigned long)order, (unsigned long)racy);
}
