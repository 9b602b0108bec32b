// Clocks of processor time: of the process, of this thread, of another; timers on them; clocks that are none.
#include "guest.h"
#include <sys/resource.h>
#include <sys/times.h>

static volatile sig_atomic_t count;
static _Atomic int stop;
static _Atomic long worker_id;

static void handler(int number) { (void)number; count++; }

static void *worker(void *unused) {
    (void)unused;
    worker_id = gettid_raw();
    while (!stop) burn(1000), sched_yield();
    return NULL;
}

int main(void) {
    clockid_t process, self, other;
    must(clock_getcpuclockid(0, &process));
    expect(clock_getcpuclockid(1 << 25, &self) == ESRCH);
    ok(pthread_getcpuclockid(pthread_self(), &self));
    pthread_t thread = start(worker, NULL);
    ok(pthread_getcpuclockid(thread, &other));
    while (!worker_id) sched_yield();
    int64_t p0 = now_ns(process), s0 = now_ns(self), t0 = now_ns(CLOCK_THREAD_CPUTIME_ID), o0 = now_ns(other);
    burn(3000000);
    while (now_ns(other) <= o0) sched_yield();
    int64_t p1 = now_ns(process), s1 = now_ns(self), t1 = now_ns(CLOCK_THREAD_CPUTIME_ID), o1 = now_ns(other);
    expect(p1 > p0 && s1 > s0 && t1 > t0 && o1 > o0 && s0 <= t0 && s1 <= t1);
    expect(now_ns(CLOCK_PROCESS_CPUTIME_ID) >= p1);
    struct timespec resolution;
    must(clock_getres(other, &resolution));
    expect(resolution.tv_sec == 0 && resolution.tv_nsec == 1);
    // User time and all time of a thread.
    int64_t virtual = now_ns((clockid_t)(~(unsigned)gettid_raw() << 3 | 4 | 1)), both = now_ns((clockid_t)(~(unsigned)gettid_raw() << 3 | 4 | 0));
    expect(virtual >= 0 && both >= 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGRTMIN + 6, &action, NULL));
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 6};
    must(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
    struct itimerspec when = {.it_value = {0, 2000000}}, left;
    must(timer_settime(timer, 0, &when, NULL));
    must(timer_gettime(timer, &left));
    expect(left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 4000000);
    while (!count) burn(1000);
    must(timer_delete(timer));
    stop = 1;
    finish(thread);
    struct timespec gone;
    int r = clock_gettime(other, &gone);
    expect(r == 0 || errno == EINVAL);
    fails(EINVAL, clock_gettime(77, &gone));
    fails(EINVAL, clock_gettime((int)(~1023u << 3 | 3), &gone));
    expect(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &(struct timespec){0, 1}, NULL) == EINVAL);
    fails(EINVAL, clock_settime(CLOCK_MONOTONIC, &gone));
    struct rusage own, all, children;
    must(getrusage(RUSAGE_THREAD, &own));
    must(getrusage(RUSAGE_SELF, &all));
    must(getrusage(RUSAGE_CHILDREN, &children));
    expect(children.ru_utime.tv_sec == 0 && all.ru_maxrss > 0);
    struct tms ticks;
    must(times(&ticks));
    expect(ticks.tms_cutime == 0);
    say("process %ld, thread %ld, other %ld\n", p1 - p0, t1 - t0, o1 - o0);
}
