// How the clock is kept: adjtimex and its kin read only; setting is refused, or not asked for.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/timex.h>

int main(void) {
    struct timex t = {.modes = 0};
    int state = must(adjtimex(&t));
    expect(state >= TIME_OK && state <= TIME_ERROR && t.tick >= 9000 && t.tick <= 11000 && t.precision > 0);
    say("state %d, offset %ld, frequency %ld, status %x, at %ld\n", state, t.offset, t.freq, t.status, t.time.tv_sec);
    struct timex again = {.modes = 0};
    must(clock_adjtime(CLOCK_REALTIME, &again));
    expect(again.tick == t.tick && again.time.tv_sec >= t.time.tv_sec);
    fails(EOPNOTSUPP, clock_adjtime(CLOCK_MONOTONIC, &again));
    fails(EINVAL, clock_adjtime(77, &again));
    struct ntptimeval time;
    must(ntp_gettime(&time));
    say("error at most %ld\n", time.maxerror);
    t = (struct timex){.modes = ADJ_TICK, .tick = 1};
    int r = adjtimex(&t);
    expect(r == -1 && (errno == EINVAL || errno == EPERM));
    // The steps of the clocks.
    for (int clock = 0; clock < 12; clock++) {
        struct timespec step = {7, 7};
        r = clock_getres(clock, &step);
        expect(r == 0 ? step.tv_sec == 0 : errno == EINVAL);
        say("clock %d: %d, step %ld\n", clock, r, r == 0 ? step.tv_nsec : 0);
    }
    expect(clock_getres(CLOCK_REALTIME, NULL) == 0);
    fails(EINVAL, clock_settime(CLOCK_REALTIME, &(struct timespec){0, -1}));
    fails(EINVAL, clock_settime(CLOCK_BOOTTIME, &(struct timespec){1, 0}));
    int64_t a = now_ns(CLOCK_BOOTTIME), b = now_ns(CLOCK_MONOTONIC);
    expect(a >= b || b - a < 1000000000ll);
}
