// Dekker's algorithm: two threads keep each other out by plain stores and fences, each of the kinds that compilers make. Under `reprise run` a fence
// is the place at which others see what was stored before.
#include "guest.h"

#define ROUNDS 200

static volatile int wants[2], turn;
static volatile long entered, order;
static int kind;

static void fence(void) {
    if (kind == 0) __asm__ volatile("mfence" ::: "memory");
    if (kind == 1) __asm__ volatile("lock orq $0, (%%rsp)" ::: "memory", "cc");
    if (kind == 2) __asm__ volatile("lock orl $0, -64(%%rsp)" ::: "memory", "cc");
    if (kind == 3) __asm__ volatile("lock addl $0, -4(%%rsp)" ::: "memory", "cc");
}

static void *takes_turns(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < ROUNDS; i++) {
        wants[me] = 1;
        fence();
        while (wants[1 - me]) {
            if (turn != me) {
                wants[me] = 0;
                while (turn != me) fence();
                wants[me] = 1;
            }
            fence();
        }
        // Lost, where both are here at once.
        entered++;
        order = order * 3 + me;
        fence();
        turn = 1 - me;
        wants[me] = 0;
        fence();
    }
    return NULL;
}

int main(void) {
    for (kind = 0; kind < 4; kind++) {
        pthread_t threads[2];
        for (intptr_t i = 0; i < 2; i++) threads[i] = start(takes_turns, (void *)i);
        for (int i = 0; i < 2; i++) finish(threads[i]);
        expect(entered == 2 * ROUNDS * (kind + 1));
        say("fence %d: order %ld\n", kind, order);
    }
}
