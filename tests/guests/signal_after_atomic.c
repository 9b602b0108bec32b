// Signals in code without calls that follows an atomic instruction: nothing but the code itself says where their handlers ran.
// run: 60
#include "guest.h"

static volatile sig_atomic_t ticks;
static volatile uint64_t order;
static long word;
static sem_t end;

static void handler(int number) {
    (void)number;
    ticks++;
    order = mix(order + __atomic_load_n(&word, __ATOMIC_RELAXED));
}

static void *idles(void *unused) {
    while (sem_wait(&end)) continue;
    return unused;
}

int main(int argc, char **argv) {
    long wanted = number(argc, argv, 1, 60);
    ok(sem_init(&end, 0, 0));
    // With a second thread, atomic instructions have an order.
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ok(pthread_sigmask(SIG_BLOCK, &alarm, NULL));
    pthread_t idle = start(idles, NULL);
    ok(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL));
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL));
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 500}, {.tv_usec = 500}}, NULL));
    uint64_t x = 0;
    for (long i = 0; ticks < wanted; i++) {
        __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
        x += burn(300);
    }
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    must(sem_post(&end));
    finish(idle);
    say("%d ticks, order %lu, %ld rounds, %lu\n", ticks, order, word, x);
}
