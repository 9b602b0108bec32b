// The futex operations beside WAIT and WAKE between processes that see the words at different addresses: BITSET, REQUEUE, WAKE_OP; and
// private operations on shared words, which meet nobody.
#include "guest.h"
#include <linux/futex.h>
#include <sys/wait.h>

enum { CHILDREN = 4 };

struct shared {
    uint32_t gate, other, words[2];
    _Atomic int waiting, woken, order[CHILDREN];
};

static struct shared *s;

static long futex(void *word, int op, uint32_t value, uintptr_t extra, void *second, uint32_t last) {
    return syscall(SYS_futex, word, op, value, extra, second, last);
}

static pid_t waiter(int fd, int me) {
    pid_t pid = must(fork());
    if (pid != 0) return pid;
    // At an address of its own.
    s = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    s->waiting++;
    while (__atomic_load_n(&s->gate, __ATOMIC_SEQ_CST) == 0) {
        long r = futex(&s->gate, FUTEX_WAIT_BITSET, 0, 0, NULL, 1u << me);
        if (r == 0) break;
        expect(errno == EAGAIN || errno == EINTR);
    }
    s->order[s->woken++] = me;
    _exit(me);
}

static int reap(void) {
    int status;
    must(wait(&status));
    expect(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void) {
    int fd = must(memfd_create("words", 0));
    must(ftruncate(fd, 4096));
    s = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    struct shared *again = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    expect(again != s);
    // One by one, in an order that we choose by their bits.
    for (int i = 0; i < CHILDREN; i++) waiter(fd, i);
    while (s->waiting < CHILDREN) sched_yield();
    static const int order[CHILDREN] = {2, 0, 3, 1};
    for (int i = 0; i < CHILDREN; i++) {
        expect(futex(&again->gate, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << 20) == 0);
        expect(futex(&again->gate, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0, NULL, 0) == 0);
        while (futex(&again->gate, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << order[i]) != 1) sched_yield();
        expect(reap() == order[i] && s->order[i] == order[i]);
    }
    say("woken by their bits\n");

    // All of them moved to another word, and woken there.
    s->waiting = s->woken = 0;
    for (int i = 0; i < CHILDREN; i++) waiter(fd, i);
    fails(EAGAIN, futex(&s->gate, FUTEX_CMP_REQUEUE, 0, INT_MAX, &s->other, 5));
    long moved = 0;
    while (moved < CHILDREN) {
        moved += must(moved % 2 ? futex(&s->gate, FUTEX_REQUEUE, 0, INT_MAX, &again->other, 0)
                                : futex(&again->gate, FUTEX_CMP_REQUEUE, 0, 1, &s->other, 0));
        sched_yield();
    }
    expect(futex(&s->gate, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
    long woken = must(futex(&s->other, FUTEX_WAKE, 3, 0, NULL, 0));
    expect(woken == 3 && futex(&again->other, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 1);
    uint64_t ended = 0;
    for (int i = 0; i < CHILDREN; i++) ended |= 1u << reap();
    expect(ended == (1u << CHILDREN) - 1);
    say("moved and woken\n");

    // Wake at one word, change another and wake there.
    for (int i = 0; i < 2; i++) {
        s->waiting = 0;
        pid_t pid = must(fork());
        if (pid == 0) {
            uint32_t *word = &again->words[i];
            again->waiting++;
            while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) futex(word, FUTEX_WAIT, 0, 0, NULL, 0);
            _exit((int)*word);
        }
        while (s->waiting == 0) sched_yield();
        if (i == 0) __atomic_store_n(&s->words[0], 3, __ATOMIC_SEQ_CST);
        must(futex(&s->words[0], FUTEX_WAKE_OP, 1, 1, &s->words[1], FUTEX_OP(FUTEX_OP_OR, i ? 8 : 0, FUTEX_OP_CMP_EQ, 0)));
        expect(reap() == (i ? 8 : 3));
    }
    // A waiter that is killed is no longer in the queue.
    s->waiting = s->gate = s->other = 0;
    pid_t pid = waiter(fd, 1);
    while (futex(&s->gate, FUTEX_CMP_REQUEUE, 0, 1, &s->other, 0) != 1) sched_yield();
    must(kill(pid, SIGKILL));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status));
    expect(futex(&s->other, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
    // Limits.
    struct timespec brief = {.tv_nsec = 1000000};
    fails(ETIMEDOUT, futex(&s->gate, FUTEX_WAIT, 0, (uintptr_t)&brief, NULL, 0));
    fails(EAGAIN, futex(&s->gate, FUTEX_WAIT, 1, 0, NULL, 0));
    say("done\n");
}
