// The futex operations beside WAIT and WAKE: BITSET, REQUEUE, CMP_REQUEUE, WAKE_OP; private and shared.
#include "guest.h"
#include <linux/futex.h>

static uint32_t first, second, words[2];
static _Atomic int woken[8], waiting;
static int shared;

static long futex(void *word, int op, uint32_t value, uintptr_t extra, void *other, uint32_t last) {
    return syscall(SYS_futex, word, op | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, extra, other, last);
}

static void *waiter(void *p) {
    int me = (intptr_t)p;
    waiting++;
    // Spurious wake-ups are allowed, so the word says whether it is over.
    while (__atomic_load_n(&first, __ATOMIC_SEQ_CST) == 0) {
        long r = futex(&first, FUTEX_WAIT_BITSET, 0, 0, NULL, 1u << me);
        if (r == 0) break;
        expect(errno == EAGAIN || errno == EINTR);
    }
    woken[me] = 1;
    return NULL;
}

static int sum(void) {
    int n = 0;
    for (int i = 0; i < 8; i++) n += woken[i];
    return n;
}

static void round_trip(void) {
    pthread_t threads[8];
    first = second = 0;
    waiting = 0;
    for (int i = 0; i < 8; i++) woken[i] = 0;
    for (intptr_t i = 0; i < 8; i++) threads[i] = start(waiter, (void *)i);
    while (waiting < 8) sched_yield();
    expect(futex(&first, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << 31) == 0);
    // Wake exactly the one with bit 3, as soon as it waits.
    while (futex(&first, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << 3) != 1) sched_yield();
    finish(threads[3]);
    expect(sum() == 1 && woken[3]);
    // Move the rest to the second word, as they come: seven in all, of which some are woken right here.
    long moved = 0, awake = 0;
    fails(EAGAIN, futex(&first, FUTEX_CMP_REQUEUE, 1, INT_MAX, &second, 77));
    while (moved + awake < 7) {
        long r = futex(&first, FUTEX_CMP_REQUEUE, awake < 2 ? 1 : 0, INT_MAX, &second, 0);
        expect(r >= 0);
        // The result counts the woken and the moved.
        if (r > 0 && awake < 2) awake++, r--;
        moved += r;
        sched_yield();
    }
    long later = 0;
    while (later < moved) {
        long r = must(futex(&second, FUTEX_WAKE, 1, 0, NULL, 0));
        later += r;
    }
    for (int i = 0; i < 8; i++)
        if (i != 3) finish(threads[i]);
    expect(sum() == 8);
    say("shared %d: woken %ld, moved %ld\n", shared, awake, moved);
}

static void *on_words(void *p) {
    uint32_t *word = (uint32_t *)p;
    waiting++;
    // Looked at by a locked instruction: with a plain load it is a race whether the thread waits once more.
    while (__atomic_fetch_add(word, 0, __ATOMIC_SEQ_CST) == 0) {
        if (futex(word, FUTEX_WAIT, 0, 0, NULL, 0) == -1) expect(errno == EAGAIN || errno == EINTR);
    }
    return NULL;
}

static void wake_op(void) {
    words[0] = words[1] = 0;
    waiting = 0;
    pthread_t a = start(on_words, &words[0]), b = start(on_words, &words[1]);
    while (waiting < 2) sched_yield();
    // Set the second word to 5, and wake there if it was 0 before; set the first by hand.
    __atomic_store_n(&words[0], 1, __ATOMIC_SEQ_CST);
    long r = must(futex(&words[0], FUTEX_WAKE_OP, 10, 10, &words[1], FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0)));
    expect(r >= 0 && r <= 2 && words[1] == 5);
    finish(a);
    finish(b);
    long again = must(futex(&words[0], FUTEX_WAKE_OP, 1, 1, &words[1], FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_GT, 100)));
    expect(again == 0 && words[1] == 12);
    must(futex(&words[0], FUTEX_WAKE_OP, 1, 1, &words[1], FUTEX_OP(FUTEX_OP_ANDN, 4, FUTEX_OP_CMP_NE, 0)));
    expect(words[1] == 8);
    must(futex(&words[0], FUTEX_WAKE_OP, 1, 1, &words[1], FUTEX_OP((FUTEX_OP_XOR | FUTEX_OP_OPARG_SHIFT), 4, FUTEX_OP_CMP_LT, 0)));
    expect(words[1] == 24);
    fails(EINVAL, futex(&words[0], FUTEX_WAIT_BITSET, 0, 0, NULL, 0));
    fails(ENOSYS, syscall(SYS_futex, &words[0], 127, 0, NULL, NULL, 0));
    fails(EINVAL, syscall(SYS_futex, (char *)words + 1, FUTEX_WAIT, 0, NULL, NULL, 0));
    say("woken by an operation: %ld\n", r);
}

int main(void) {
    for (shared = 0; shared < 2; shared++) {
        for (int i = 0; i < 3; i++) round_trip();
        wake_op();
    }
}
