// Timers that are read: once, again and again, at an absolute time, late; settings and errors.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/timerfd.h>
#include <poll.h>

int main(void) {
    int fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    uint64_t times;
    tell(read(fd, &times, 8));
    tell(read(fd, &times, 4));
    struct itimerspec set = {.it_value = {0, 2000000}}, now;
    must(timerfd_settime(fd, 0, &set, NULL));
    struct pollfd p = {fd, POLLIN, 0};
    tell(poll(&p, 1, -1));
    tell(read(fd, &times, 8));
    say("expired %lu times\n", times);
    must(timerfd_gettime(fd, &now));
    expect(now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
    // Long over: at once.
    set.it_value = (struct timespec){1, 0};
    must(timerfd_settime(fd, TFD_TIMER_ABSTIME, &set, &now));
    tell(poll(&p, 1, -1));
    tell(read(fd, &times, 8));
    must(fcntl(fd, F_SETFL, 0));
    set = (struct itimerspec){.it_value = {0, 1000000}, .it_interval = {0, 1000000}};
    must(timerfd_settime(fd, 0, &set, NULL));
    uint64_t all = 0;
    while (all < 10) {
        expect(read(fd, &times, 8) == 8 && times > 0);
        all += times;
    }
    must(timerfd_settime(fd, 0, &(struct itimerspec){0}, &now));
    expect(now.it_interval.tv_nsec == 1000000);
    say("about ten: %lu\n", all);
    tell(timerfd_create(77, 0));
    tell(timerfd_create(CLOCK_MONOTONIC, 1));
    tell(timerfd_settime(1, 0, &set, NULL));
    set.it_value.tv_nsec = 1000000000;
    tell(timerfd_settime(fd, 0, &set, NULL));
    tell(timerfd_settime(fd, 0, (void *)8, NULL));
    tell(timerfd_gettime(fd, (void *)8));
    tell(write(fd, &times, 8));
}
