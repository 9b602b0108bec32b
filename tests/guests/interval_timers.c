// setitimer, alarm and timer_create: what is left, intervals, values that handlers get, timers that go away.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
static volatile sig_atomic_t count, value, code;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    count++;
    value = info->si_value.sival_int;
    code = info->si_code;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    for (int s = 0; s < 4; s++) must(sigaction((int[]){SIGALRM, SIGVTALRM, SIGPROF, SIGRTMIN + 4}[s], &action, NULL));
    tell(alarm(100));
    unsigned rest = alarm(0);
    expect(rest > 0 && rest <= 100);
    struct itimerval set = {{0, 1000}, {0, 1000}}, old;
    must(setitimer(ITIMER_REAL, &set, NULL));
    while (count < 5) pause();
    must(getitimer(ITIMER_REAL, &old));
    expect(old.it_interval.tv_usec == 1000);
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, &old));
    count = 0;
    set.it_interval.tv_usec = 0;
    must(setitimer(ITIMER_VIRTUAL, &set, NULL));
    while (count == 0) burn(1000);
    must(setitimer(ITIMER_PROF, &set, NULL));
    while (count == 1) getppid();
    tell(count);
    tell(setitimer(77, &set, NULL));
    set.it_value.tv_usec = 1000000;
    tell(setitimer(ITIMER_REAL, &set, NULL));
    tell(getitimer(ITIMER_REAL, (void *)8));
    count = 0;
    timer_t t;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 4, .sigev_value.sival_int = 4711};
    must(timer_create(CLOCK_MONOTONIC, &event, &t));
    struct itimerspec spec = {.it_value = {0, 1000000}}, left;
    must(timer_settime(t, 0, &spec, NULL));
    while (count == 0) sched_yield();
    say("value %d, code %d\n", value, code);
    spec = (struct itimerspec){.it_value = {1000, 0}, .it_interval = {5, 6}};
    must(timer_settime(t, 0, &spec, NULL));
    must(timer_gettime(t, &left));
    expect(left.it_value.tv_sec > 0 && left.it_value.tv_sec <= 1000 && left.it_interval.tv_nsec == 6);
    tell(timer_getoverrun(t));
    tell(timer_delete(t));
    event.sigev_notify = SIGEV_NONE;
    must(timer_create(CLOCK_REALTIME, &event, &t));
    spec = (struct itimerspec){.it_value = {0, 1}};
    must(timer_settime(t, 0, &spec, NULL));
    do must(timer_gettime(t, &left));
    while (left.it_value.tv_nsec != 0);
    tell(timer_delete(t));
    int number;
    tell(syscall(SYS_timer_delete, 99999));
    tell(syscall(SYS_timer_create, 99, NULL, &number));
    tell(syscall(SYS_timer_create, CLOCK_MONOTONIC, (void *)8, &number));
    tell(syscall(SYS_timer_settime, 99999, 0, &spec, NULL));
}
