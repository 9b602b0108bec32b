// Coroutines by makecontext and swapcontext: generators, signal masks that go with them, contexts that move from thread to thread.
// run: 200
#include "guest.h"
#include <ucontext.h>

enum { ROUTINES = 5, STACK = 65536 };

static ucontext_t scheduler, routines[ROUTINES];
static long values[ROUTINES], rounds;
static int current;
static uint64_t order;

static void routine(int me, int step) {
    sigset_t set;
    for (long i = 0; i < rounds; i++) {
        values[me] += step;
        order = mix(order + me);
        // Arithmetic in floating point and a call, across the switch.
        volatile double x = me + i / 8.0;
        expect(swapcontext(&routines[me], &scheduler) == 0);
        expect(x == me + i / 8.0 && current == me);
        ok(pthread_sigmask(SIG_BLOCK, NULL, &set));
        expect(sigismember(&set, SIGRTMIN + me) == 1 && sigismember(&set, SIGRTMIN + me + 1) == 0);
    }
    values[me] = -values[me];
}

static void make(int i) {
    must(getcontext(&routines[i]));
    routines[i].uc_stack = (stack_t){.ss_sp = malloc(STACK), .ss_size = STACK};
    routines[i].uc_link = &scheduler;
    sigemptyset(&routines[i].uc_sigmask);
    sigaddset(&routines[i].uc_sigmask, SIGRTMIN + i);
    makecontext(&routines[i], (void (*)(void))routine, 2, i, i + 3);
}

static ucontext_t here, there, back;
static long starter, finisher;
static _Atomic int parked;

static void moves(void) {
    expect(gettid_raw() == starter);
    parked = 1;
    swapcontext(&there, &here);
    // By a call: the compiler thinks that pthread_self is the same for ever.
    expect(gettid_raw() == finisher);
}

static void *continues(void *unused) {
    finisher = gettid_raw();
    volatile int returned = 0;
    getcontext(&back);
    if (!returned++) setcontext(&there);
    return unused;
}

static void handler(int number) {
    (void)number;
    // Out of a handler, as old schedulers with a time slice did.
    setcontext(&here);
}

static void leaves_a_handler(void) {
    signal(SIGUSR1, handler);
    volatile int times = 0;
    must(getcontext(&here));
    if (times++ < 10) raise(SIGUSR1);
    expect(times == 11);
    say("left a handler %d times\n", times - 1);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 200);
    for (int i = 0; i < ROUTINES; i++) make(i);
    for (int left = ROUTINES; left > 0;) {
        current = (current + 1) % ROUTINES;
        if (values[current] < 0) continue;
        must(swapcontext(&scheduler, &routines[current]));
        if (values[current] < 0) left--;
    }
    sigset_t set;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &set));
    for (int i = 0; i < ROUTINES; i++) expect(values[i] == -rounds * (i + 3) && !sigismember(&set, SIGRTMIN + i));
    say("order %lu\n", order);

    starter = gettid_raw();
    must(getcontext(&there));
    there.uc_stack = (stack_t){.ss_sp = malloc(STACK), .ss_size = STACK};
    there.uc_link = &back;
    makecontext(&there, moves, 0);
    must(swapcontext(&here, &there));
    expect(parked);
    finish(start(continues, NULL));
    say("moved to another thread\n");

    leaves_a_handler();
}
