// Two threads that compute in a program at low addresses: where a replay finds its places again by stubs below the first megabyte.
// variant: static -static
#include "guest.h"

static void *computes(void *unused) {
    (void)unused;
    return (void *)burn(100000000);
}

int main(void) {
    pthread_t thread = start(computes, NULL);
    uint64_t mine = burn(100000001), others = (uint64_t)finish(thread);
    say("%lu %lu\n", mine % 1000000, others % 1000000);
    return 0;
}
