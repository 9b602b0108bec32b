// Sleeps of every kind last as long as they were asked to.
#include "guest.h"
#include <poll.h>
#include <sys/select.h>

int main(void) {
    int64_t t0 = now_ns(CLOCK_MONOTONIC);
    must(nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL));
    int64_t t1 = now_ns(CLOCK_MONOTONIC);
    expect(t1 - t0 >= 1000000);
    must(usleep(1000));
    struct timespec until = {.tv_sec = t1 / 1000000000, .tv_nsec = t1 % 1000000000};
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    ok(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
    int64_t t2 = now_ns(CLOCK_MONOTONIC);
    expect(t2 - t1 >= 5000000);
    // A time that has passed already.
    ok(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
    expect(poll(NULL, 0, 2) == 0);
    struct timeval timeout = {.tv_usec = 2000};
    expect(select(0, NULL, NULL, NULL, &timeout) == 0);
    expect(timeout.tv_sec == 0 && timeout.tv_usec == 0);
    int64_t t3 = now_ns(CLOCK_MONOTONIC);
    expect(t3 - t2 >= 4000000);
    say("slept %ld, %ld, %ld ns\n", t1 - t0, t2 - t1, t3 - t2);
}
