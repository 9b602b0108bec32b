// A bad pointer in every place of the calls on time, signals, waiting and the process: EFAULT, and nothing happens.
// variant: companion -DGUEST_COMPANION
// flags: -Wno-nonnull
#include "guest.h"
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

int main(void) {
    void *bad = (void *)0x123456789000;
    char good[1024];
    memset(good, 0, sizeof good);
    struct timespec soon = {0, 1000};
    int instance = must(epoll_create1(0)), timer = must(timerfd_create(CLOCK_MONOTONIC, 0)), tube[2];
    must(pipe(tube));
    must(epoll_ctl(instance, EPOLL_CTL_ADD, tube[1], &(struct epoll_event){.events = EPOLLOUT}));
    fails(EFAULT, syscall(SYS_clock_gettime, CLOCK_REALTIME, bad));
    fails(EFAULT, syscall(SYS_clock_getres, CLOCK_REALTIME, bad));
    fails(EFAULT, syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, bad, NULL));
    expect(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, bad) == 0);
    fails(EFAULT, syscall(SYS_gettimeofday, good, bad));
    fails(EFAULT, syscall(SYS_time, bad));
    fails(EFAULT, syscall(SYS_times, bad));
    fails(EFAULT, syscall(SYS_getitimer, ITIMER_REAL, bad));
    fails(EFAULT, syscall(SYS_setitimer, ITIMER_REAL, bad, NULL));
    fails(EFAULT, syscall(SYS_setitimer, ITIMER_REAL, good, bad));
    fails(EFAULT, syscall(SYS_timer_create, CLOCK_MONOTONIC, bad, good));
    fails(EFAULT, syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, bad));
    fails(EFAULT, syscall(SYS_timerfd_settime, timer, 0, bad, NULL));
    fails(EFAULT, syscall(SYS_timerfd_settime, timer, 0, good, bad));
    fails(EFAULT, syscall(SYS_timerfd_gettime, timer, bad));
    fails(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8));
    fails(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8));
    fails(EFAULT, syscall(SYS_rt_sigprocmask, SIG_SETMASK, bad, NULL, 8));
    fails(EFAULT, syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, bad, 8));
    fails(EFAULT, syscall(SYS_rt_sigpending, bad, 8));
    fails(EFAULT, syscall(SYS_rt_sigsuspend, bad, 8));
    fails(EFAULT, syscall(SYS_rt_sigtimedwait, bad, NULL, &soon, 8));
    fails(EFAULT, syscall(SYS_rt_sigtimedwait, good, NULL, bad, 8));
    fails(EFAULT, syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, bad));
    fails(EFAULT, syscall(SYS_sigaltstack, bad, NULL));
    fails(EFAULT, syscall(SYS_sigaltstack, NULL, bad));
    fails(EFAULT, syscall(SYS_signalfd4, -1, bad, 8, 0));
    fails(EFAULT, syscall(SYS_poll, bad, 1, 0));
    fails(EFAULT, syscall(SYS_ppoll, good, 0, bad, NULL, 8));
    fails(EFAULT, syscall(SYS_ppoll, good, 0, &soon, bad, 8));
    fails(EFAULT, syscall(SYS_select, 8, bad, NULL, NULL, NULL));
    fails(EFAULT, syscall(SYS_select, 8, NULL, bad, NULL, NULL));
    fails(EFAULT, syscall(SYS_select, 0, NULL, NULL, NULL, bad));
    fails(EFAULT, syscall(SYS_pselect6, 8, NULL, NULL, bad, &soon, NULL));
    fails(EFAULT, syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, bad));
    fails(EFAULT, syscall(SYS_epoll_wait, instance, bad, 1, 0));
    fails(EFAULT, syscall(SYS_epoll_pwait, instance, good, 1, 0, bad, 8));
    fails(EFAULT, syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, tube[0], bad));
    fails(EFAULT, syscall(SYS_futex, bad, 0, 0, NULL, NULL, 0));
    fails(EFAULT, syscall(SYS_futex, good, 0, 0, bad, NULL, 0));
    fails(EFAULT, syscall(SYS_pipe2, bad, 0));
    fails(EFAULT, syscall(SYS_getrlimit, 0, bad));
    fails(EFAULT, syscall(SYS_setrlimit, RLIMIT_CORE, bad));
    fails(EFAULT, syscall(SYS_prlimit64, 0, RLIMIT_CORE, bad, NULL));
    fails(EFAULT, syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, bad));
    fails(EFAULT, syscall(SYS_getrusage, 0, bad));
    fails(EFAULT, syscall(SYS_sysinfo, bad));
    fails(EFAULT, syscall(SYS_getresuid, bad, good, good));
    fails(EFAULT, syscall(SYS_getresuid, good, good, bad));
    fails(EFAULT, syscall(SYS_getcpu, bad, NULL, NULL));
    fails(EFAULT, syscall(SYS_sched_getaffinity, 0, 128, bad));
    fails(EFAULT, syscall(SYS_sched_setaffinity, 0, 128, bad));
    fails(EINVAL, syscall(SYS_sched_getparam, 0, NULL));
    fails(EFAULT, syscall(SYS_sched_getparam, 0, bad));
    fails(EFAULT, syscall(SYS_sched_getattr, 0, bad, 48, 0));
    fails(EFAULT, syscall(SYS_sched_setattr, 0, bad, 0));
    fails(EFAULT, syscall(SYS_sched_rr_get_interval, 0, bad));
    fails(EFAULT, syscall(SYS_get_robust_list, 0, bad, good));
    fails(EFAULT, syscall(SYS_prctl, PR_SET_NAME, bad));
    fails(EFAULT, syscall(SYS_prctl, PR_GET_NAME, bad));
    fails(EFAULT, syscall(SYS_adjtimex, bad));
    say("descriptors %d %d\n", instance, timer);
}
