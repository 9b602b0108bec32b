// Cuts and signals together: two threads compute, a timer interrupts whichever runs, and a third thread sends signals to both.
// variant: O0 -O0
// run: 10
#include "guest.h"

static _Atomic int alarms, messages;
static _Atomic long by_thread[3];
static _Thread_local int me;
static volatile int stop;
static volatile uint64_t progress[2][8];
static volatile uint64_t noted;

static void handler(int number) {
    if (number == SIGALRM) alarms++;
    else messages++;
    by_thread[me]++;
    noted = mix(noted + progress[0][0] + progress[1][0] * 3 + me);
}

static void *body(void *p) {
    me = (intptr_t)p;
    while (!stop) progress[me][0]++;
    return NULL;
}

int main(int argc, char **argv) {
    int wanted = number(argc, argv, 1, 10);
    me = 2;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[2] = {start(body, (void *)0), start(body, (void *)1)};
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 3000}, {.tv_usec = 3000}}, NULL));
    for (int i = 0; i < wanted; i++) {
        int before = messages;
        ok(pthread_kill(threads[i % 2], SIGUSR1));
        while (messages == before) usleep(1000);
    }
    while (alarms < 3) usleep(1000);
    stop = 1;
    finish(threads[0]);
    finish(threads[1]);
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    say("alarms %d, by thread %ld %ld %ld, noted %lu\n", (int)alarms, by_thread[0], by_thread[1], by_thread[2], noted);
}
