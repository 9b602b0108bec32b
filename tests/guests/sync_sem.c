// Semaphores: values, failures, handlers that interrupt and handlers that don't, cancellation, semaphores that are gone after they let somebody
// through, and many threads that share few tokens.
// run: 2 2000
// run: 8 500
// run: 64 60
#include "guest.h"

static const struct timespec nonsense = {1, 1000000000}, long_ago = {1, 0};
static sem_t tokens, handed;
static tally handled, waits;
static _Atomic int inside, most;
static long rounds;

static void on_signal(int unused) {
    (void)unused;
    count_up(&handled);
}

static struct timespec soon(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static void alone(void) {
    sem_t s;
    int v = -1;
    fails(EINVAL, sem_init(&s, 0, 1u << 31));
    must(sem_init(&s, 0, 2));
    must(sem_wait(&s));
    must(sem_trywait(&s));
    fails(EAGAIN, sem_trywait(&s));
    must(sem_getvalue(&s, &v));
    expect(v == 0);
    struct timespec real = soon(CLOCK_REALTIME), mono = soon(CLOCK_MONOTONIC);
    fails(ETIMEDOUT, sem_timedwait(&s, &real));
    fails(ETIMEDOUT, sem_clockwait(&s, CLOCK_MONOTONIC, &mono));
    fails(ETIMEDOUT, sem_timedwait(&s, &long_ago));
    fails(EINVAL, sem_timedwait(&s, &nonsense));
    fails(EINVAL, sem_clockwait(&s, CLOCK_PROCESS_CPUTIME_ID, &mono));
    must(sem_post(&s));
    must(sem_timedwait(&s, &long_ago));
    must(sem_destroy(&s));
    must(sem_init(&s, 1, 0x7fffffff));
    fails(EOVERFLOW, sem_post(&s));
    must(sem_getvalue(&s, &v));
    expect(v == 0x7fffffff);
    must(sem_destroy(&s));
}

static int result_of_wait, errno_of_wait;

static void *waits_once(void *how) {
    struct timespec t = soon(CLOCK_REALTIME);
    t.tv_sec += 1000;
    count_up(&waits);
    errno = 0;
    result_of_wait = how ? sem_timedwait(&tokens, &t) : sem_wait(&tokens);
    errno_of_wait = errno;
    sem_post(&handed);
    return NULL;
}

// Sends signals to a waiting thread until its handler has run `n` times.
static void interrupt(pthread_t thread, int n) {
    while (!counted(&waits)) sched_yield();
    while (counted(&handled) < n) {
        pthread_kill(thread, SIGUSR1);
        sched_yield();
    }
}

static void interrupted(void) {
    for (int restart = 0; restart < 2; restart++) {
        for (uintptr_t timed = 0; timed < 2; timed++) {
            struct sigaction a = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
            must(sigaction(SIGUSR1, &a, NULL));
            must(sem_init(&tokens, 0, 0));
            count_from_zero(&handled);
            count_from_zero(&waits);
            pthread_t thread = start(waits_once, (void *)timed);
            interrupt(thread, 1);
            int v;
            if (restart && !timed) {
                // It waits still.
                must(sem_post(&tokens));
                must(sem_wait(&handed));
                expect(result_of_wait == 0);
            } else {
                // The first signals may have come before the wait.
                while (sem_trywait(&handed) != 0) {
                    pthread_kill(thread, SIGUSR1);
                    sched_yield();
                }
                expect(result_of_wait == -1 && errno_of_wait == EINTR);
            }
            finish(thread);
            must(sem_getvalue(&tokens, &v));
            expect(v == 0);
        }
    }
}

static void *waits_for_ever(void *unused) {
    (void)unused;
    count_up(&waits);
    sem_wait(&tokens);
    return NULL;
}

static void cancelled(void) {
    must(sem_init(&tokens, 0, 0));
    for (int i = 0; i < 3; i++) {
        count_from_zero(&waits);
        pthread_t thread = start(waits_for_ever, NULL);
        while (i && !counted(&waits)) sched_yield();
        for (int k = 0; i == 2 && k < 100; k++) sched_yield();
        ok(pthread_cancel(thread));
        expect(finish(thread) == PTHREAD_CANCELED);
    }
    must(sem_post(&tokens));
    fails(EAGAIN, (must(sem_trywait(&tokens)), sem_trywait(&tokens)));
}

// The semaphore lies on the stack of the one who waits.
static sem_t *volatile letter;

static void *posts(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        must(sem_wait(&handed));
        must(sem_post(letter));
    }
    return NULL;
}

static void __attribute__((noinline)) waits_for_letter(int fill) {
    sem_t s;
    must(sem_init(&s, 0, 0));
    letter = &s;
    must(sem_post(&handed));
    must(sem_wait(&s));
    memset(&s, fill, sizeof s);
}

static void gone(void) {
    pthread_t thread = start(posts, NULL);
    for (int i = 0; i < 200; i++) waits_for_letter(i);
    finish(thread);
}

static void *shares(void *unused) {
    (void)unused;
    for (long i = 0; i < rounds; i++) {
        struct timespec t = soon(CLOCK_MONOTONIC);
        if (i % 3 == 0) while (sem_trywait(&tokens) != 0) sched_yield();
        else if (i % 3 == 1) while (sem_clockwait(&tokens, CLOCK_MONOTONIC, &t) != 0) t = soon(CLOCK_MONOTONIC);
        else must(sem_wait(&tokens));
        int now = ++inside;
        if (now > most) most = now;
        inside--;
        must(sem_post(&tokens));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8), v;
    rounds = number(argc, argv, 2, 500);
    must(sem_init(&handed, 0, 0));
    alone();
    interrupted();
    cancelled();
    gone();
    must(sem_init(&tokens, 0, 2));
    pthread_t list[threads];
    for (int i = 0; i < threads; i++) list[i] = start(shares, NULL);
    for (int i = 0; i < threads; i++) finish(list[i]);
    must(sem_getvalue(&tokens, &v));
    expect(v == 2 && most <= 2);
    say("most inside %d\n", most);
}
