// What a wait on a condition leaves in a register that functions may change (r9) is the same whether the thread was interrupted in the wait or not: whether it is
// nobody orders. The register is told to the kernel, since a replay compares the arguments of calls.
// run: 300
#include "guest.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long turn, rounds;
static volatile sig_atomic_t signals;

static void on_signal(GUEST_UNUSED int signal) { signals++; }

static void told(uint64_t r9) { expect(lseek(-1, (off_t)r9, SEEK_SET) == -1 && errno == EBADF); }

// The function at `f` with two arguments, and what it leaves in r9.
static uint64_t r9_after(int (*f)(void *, void *), void *a, void *b) {
    register uint64_t r9 __asm__("r9") = 4711;
    long result;
    __asm__ volatile("call *%[f]"
                     : "=a"(result), "+r"(r9), "+D"(a), "+S"(b)
                     : [f] "r"(f)
                     : "rcx", "rdx", "r8", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
    expect((int)result == 0 || (int)result == PTHREAD_BARRIER_SERIAL_THREAD);
    return r9;
}

static int waits(void *c, void *m) { return pthread_cond_wait(c, m); }
static int meets(void *b, GUEST_UNUSED void *none) { return pthread_barrier_wait(b); }

static void *waiter(void *unused) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&mutex));
        while (turn <= i) told(r9_after(waits, &changed, &mutex));
        ok(pthread_mutex_unlock(&mutex));
        told(r9_after(meets, &barrier, NULL));
    }
    return unused;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 300);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    ok(pthread_barrier_init(&barrier, NULL, 2));
    pthread_t thread = start(waiter, NULL);
    for (long i = 0; i < rounds; i++) {
        if (i % 2 != 0) ok(pthread_kill(thread, SIGUSR1));
        ok(pthread_mutex_lock(&mutex));
        turn++;
        ok(pthread_cond_signal(&changed));
        ok(pthread_mutex_unlock(&mutex));
        if (i % 3 == 0) ok(pthread_kill(thread, SIGUSR1));
        int met = pthread_barrier_wait(&barrier);
        expect(met == 0 || met == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    finish(thread);
    expect(signals > 0);
    say("waited\n");
}
