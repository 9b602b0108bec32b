// What is done once: by the first of many threads; anew when it was cancelled in the middle; in a child that was forked in the middle; in C11's
// way. And spin locks.
// run: 2
// run: 8
// run: 64
#include "guest.h"
#include <sys/wait.h>
#include <threads.h>

static pthread_once_t plain = PTHREAD_ONCE_INIT, cancelled = PTHREAD_ONCE_INIT, forked = PTHREAD_ONCE_INIT;
static once_flag flag = ONCE_FLAG_INIT;
static _Atomic int runs, attempts, c11_runs, started, in_child;
static int made;

static void make(void) {
    runs++;
    for (int i = 0; i < 20; i++) sched_yield();
    made = 17;
}

static void make_c11(void) {
    c11_runs++;
}

static void *calls(void *unused) {
    (void)unused;
    ok(pthread_once(&plain, make));
    expect(made == 17);
    call_once(&flag, make_c11);
    expect(c11_runs == 1);
    return NULL;
}

// The first attempt is cancelled.
static void attempt(void) {
    if (attempts++ == 0) {
        started = 1;
        for (;;) pause();
    }
}

static void *attempts_it(void *unused) {
    (void)unused;
    ok(pthread_once(&cancelled, attempt));
    return NULL;
}

static void fork_inside(void) {
    started = 2;
    while (!in_child) sched_yield();
}

static void *does_forked(void *unused) {
    (void)unused;
    ok(pthread_once(&forked, fork_inside));
    return NULL;
}

static pthread_spinlock_t spin;
static long counter;

static void *spins(void *p) {
    for (int i = 0; i < 200; i++) {
        if (((uintptr_t)p + i) % 2) ok(pthread_spin_lock(&spin));
        else while (pthread_spin_trylock(&spin) != 0) sched_yield();
        counter++;
        ok(pthread_spin_unlock(&spin));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8);
    pthread_t list[threads];
    for (int i = 0; i < threads; i++) list[i] = start(calls, NULL);
    for (int i = 0; i < threads; i++) finish(list[i]);
    expect(runs == 1);

    pthread_t first = start(attempts_it, NULL);
    while (!started) sched_yield();
    for (int i = 0; i < threads; i++) list[i] = start(attempts_it, NULL);
    for (int i = 0; i < 20; i++) sched_yield();
    ok(pthread_cancel(first));
    expect(finish(first) == PTHREAD_CANCELED);
    for (int i = 0; i < threads; i++) finish(list[i]);
    expect(attempts == 2);

    first = start(does_forked, NULL);
    while (started != 2) sched_yield();
    pid_t child = must(fork());
    if (child == 0) {
        // Whoever was at it isn't here.
        in_child = 1;
        ok(pthread_once(&forked, fork_inside));
        _exit(3);
    }
    int status;
    must(waitpid(child, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    in_child = 1;
    finish(first);

    ok(pthread_spin_init(&spin, 0));
    ok(pthread_spin_lock(&spin));
    expect(pthread_spin_trylock(&spin) == EBUSY);
    ok(pthread_spin_unlock(&spin));
    for (int i = 0; i < threads; i++) list[i] = start(spins, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++) finish(list[i]);
    expect(counter == 200L * threads);
    ok(pthread_spin_destroy(&spin));
    say("done once by %d threads\n", threads);
}
