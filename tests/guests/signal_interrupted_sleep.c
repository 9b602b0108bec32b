// What is left of an interrupted sleep; absolute sleeps; a sleep that is interrupted many times and still takes its time.
#include "guest.h"
#include <poll.h>

static volatile int ticks;

static void handler(int number) {
    (void)number;
    ticks++;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerval every = {.it_interval.tv_usec = 2000, .it_value.tv_usec = 2000};
    must(setitimer(ITIMER_REAL, &every, NULL));
    int64_t t0, t1;
    int interruptions = 0;
    // Who gets no processor until the sleep is over is told that it is over, and not that it was interrupted.
    do {
        struct timespec left = {.tv_nsec = 20000000};
        t0 = now_ns(CLOCK_MONOTONIC);
        while (nanosleep(&left, &left) == -1) {
            expect(errno == EINTR && left.tv_sec == 0 && left.tv_nsec < 20000000);
            interruptions++;
        }
        t1 = now_ns(CLOCK_MONOTONIC);
        expect(t1 - t0 >= 20000000);
    } while (interruptions == 0);
    // poll is never restarted.
    fails(EINTR, poll(NULL, 0, 1000000));
    struct timespec until;
    must(clock_gettime(CLOCK_MONOTONIC, &until));
    until.tv_sec += 1000;
    expect(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR);
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    expect(ticks >= interruptions);
    say("%d interruptions, %d ticks, %ld ns\n", interruptions, ticks, t1 - t0);
}
