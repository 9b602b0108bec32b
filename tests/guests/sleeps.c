// Sleeping: to an absolute time, with what is left after a signal, with times that make no sense.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/time.h>

static void handler(int number) { (void)number; }

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    struct timespec t = {0, 1000000}, left = {77, 77};
    tell(nanosleep(&t, &left));
    say("%ld %ld\n", left.tv_sec, left.tv_nsec);
    t = (struct timespec){100, 0};
    alarm_every(2000);
    tell(nanosleep(&t, &left));
    expect(left.tv_sec > 0 && left.tv_sec < 100);
    tell(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &left));
    alarm_every(0);
    say("left %ld.%ld\n", left.tv_sec, left.tv_nsec);
    must(clock_gettime(CLOCK_MONOTONIC, &t));
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    tell(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
    struct timespec now;
    must(clock_gettime(CLOCK_MONOTONIC, &now));
    expect(now.tv_sec > t.tv_sec || now.tv_nsec >= t.tv_nsec);
    t = (struct timespec){1, 0};
    tell(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL));
    t.tv_nsec = 1000000000;
    tell(nanosleep(&t, NULL));
    t = (struct timespec){-1, 0};
    tell(nanosleep(&t, NULL));
    tell(clock_nanosleep(77, 0, &t, NULL));
    tell(syscall(SYS_clock_gettime, 77, &t));
    tell(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (void *)8));
    tell(clock_getres(CLOCK_MONOTONIC, &t));
    tell(clock_settime(CLOCK_MONOTONIC, &t));
    alarm_every(2000);
    tell(pause());
    alarm_every(0);
    tell(usleep(1000));
    tell(sleep(0));
}
