// The classic: threads add to a counter without a lock, and some additions are lost.
// variant: O0 -O0
// variant: static -static
// run: 4 3000000
#include "guest.h"

static volatile long counter;
static long rounds;

static void *body(void *unused) {
    for (long i = 0; i < rounds; i++) counter = counter + 1;
    return unused;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 3000000);
    pthread_t threads[16];
    for (int i = 0; i < count; i++) threads[i] = start(body, NULL);
    for (int i = 0; i < count; i++) finish(threads[i]);
    expect(counter > 0 && counter <= count * rounds);
    say("%ld of %ld\n", counter, count * rounds);
}
