// Two threads hand a word to and fro, each waiting for the other with nothing but plain loads. Where one thread runs at a time, this
// never ends unless a waiting thread is cut in the middle of its loop.
// variant: O0 -O0
// variant: O2 -O2
// run: 40
#include "guest.h"

static volatile long turn;
static long rounds;

static void *body(void *p) {
    long me = (intptr_t)p;
    for (long i = 0; i < rounds; i++) {
        while (turn % 2 != me) {
        }
        turn++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 40);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    finish(a);
    finish(b);
    expect(turn == 2 * rounds);
    say("%ld turns, pid %d\n", turn, getpid());
}
