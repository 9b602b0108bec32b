// Barriers: one thread of each round is told apart, also when more threads use a barrier than it holds; signals while waiting; destruction by
// the first thread that comes out.
// run: 2 500
// run: 8 200
// run: 64 20
#include "guest.h"

static pthread_barrier_t all, half;
static long rounds;
static int threads;
static _Atomic long serial, arrived, serial_half;
static tally handled;

static void on_signal(int unused) {
    (void)unused;
    count_up(&handled);
}

static void *meets(void *unused) {
    (void)unused;
    for (long i = 0; i < rounds; i++) {
        arrived++;
        int r = pthread_barrier_wait(&all);
        expect(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
        if (r) serial++;
        expect(arrived >= (i + 1) * threads);
        if (pthread_barrier_wait(&half)) serial_half++;
    }
    return NULL;
}

struct meeting {
    pthread_barrier_t barrier;
    _Atomic int out;
};

static void *meets_once(void *p) {
    struct meeting *m = p;
    // The one who is told destroys it, while the others may still be coming out.
    if (pthread_barrier_wait(&m->barrier)) {
        ok(pthread_barrier_destroy(&m->barrier));
        memset(&m->barrier, 0xff, sizeof m->barrier);
    }
    m->out++;
    return NULL;
}

int main(int argc, char **argv) {
    threads = number(argc, argv, 1, 8);
    rounds = number(argc, argv, 2, 200);
    expect(pthread_barrier_init(&all, NULL, 0) == EINVAL);
    ok(pthread_barrier_init(&all, NULL, 1));
    expect(pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD);
    ok(pthread_barrier_destroy(&all));
    ok(pthread_barrier_init(&all, NULL, threads));
    ok(pthread_barrier_init(&half, NULL, threads / 2));
    struct sigaction a = {.sa_handler = on_signal};
    must(sigaction(SIGUSR1, &a, NULL));
    pthread_t list[threads];
    for (int i = 0; i < threads; i++) list[i] = start(meets, NULL);
    for (int i = 0; i < threads; i++) finish(list[i]);
    expect(serial == rounds && serial_half == 2 * rounds);
    for (int i = 0; i < 50; i++) {
        struct meeting m = {.out = 0};
        ok(pthread_barrier_init(&m.barrier, NULL, 2));
        pthread_t thread = start(meets_once, &m);
        // A handler that runs while the other waits doesn't let it through, nor count it again.
        for (int k = 0; k < i % 3; k++) ok(pthread_kill(thread, SIGUSR1));
        meets_once(&m);
        finish(thread);
        expect(m.out == 2);
    }
    // A handler that surely finds it waiting.
    ok(pthread_barrier_destroy(&half));
    ok(pthread_barrier_init(&half, NULL, 2));
    struct meeting m = {.out = 0};
    ok(pthread_barrier_init(&m.barrier, NULL, 2));
    pthread_t thread = start(meets_once, &m);
    count_from_zero(&handled);
    while (counted(&handled) < 5) {
        int before = counted(&handled);
        ok(pthread_kill(thread, SIGUSR1));
        while (counted(&handled) == before) sched_yield();
    }
    expect(m.out == 0);
    meets_once(&m);
    finish(thread);
    ok(pthread_barrier_destroy(&all));
    say("rounds %ld, told %ld and %ld\n", rounds, serial, serial_half);
}
