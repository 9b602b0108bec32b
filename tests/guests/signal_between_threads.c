// Four threads send each other signals while they compute and while they block; none is lost.
// run: 12
#include "guest.h"

static pthread_t threads[4];
static pthread_barrier_t barrier;
static _Thread_local volatile int mine;
static tally handled[4];
static _Thread_local int me = -1;
static long rounds;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    expect(number == SIGUSR1 && info->si_code == SI_TKILL && info->si_pid == getpid());
    expect(me >= 0);
    mine++;
    count_up(&handled[me]);
}

static void *body(void *p) {
    me = (intptr_t)p;
    uint64_t x = 0;
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < rounds; i++) {
        int other = (me + 1 + i % 3) % 4;
        int before = counted(&handled[other]);
        ok(pthread_kill(threads[other], SIGUSR1));
        // Standard signals merge: wait until it has one more.
        while (counted(&handled[other]) == before) {
            x += burn(10);
            if (i % 5 == 0) sched_yield();
        }
    }
    pthread_barrier_wait(&barrier);
    expect(mine == counted(&handled[me]));
    return (void *)x;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 60);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    ok(pthread_barrier_init(&barrier, NULL, 5));
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)i);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    say("handled %d %d %d %d\n", counted(&handled[0]), counted(&handled[1]), counted(&handled[2]), counted(&handled[3]));
}
