// Timers of every kind: setitimer, alarm, timer_create with a signal, for one thread, with a thread; overruns; processor-time timers.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/syscall.h>

static volatile int ticks, value, overruns;
static volatile long on_thread;
static sem_t in_thread;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    ticks++;
    if (info->si_code == SI_TIMER) {
        value = info->si_value.sival_int;
        overruns += info->si_overrun;
    }
    on_thread = gettid_raw();
}

static void by_thread(union sigval v) {
    expect(v.sival_int == 55);
    must(sem_post(&in_thread));
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGALRM, &action, NULL));
    must(sigaction(SIGRTMIN, &action, NULL));
    must(sigaction(SIGVTALRM, &action, NULL));
    must(sigaction(SIGPROF, &action, NULL));
    sigset_t block, open;
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigaddset(&block, SIGRTMIN);
    ok(pthread_sigmask(SIG_BLOCK, &block, &open));
    expect(alarm(1000) == 0);
    unsigned rest = alarm(0);
    expect(rest > 0 && rest <= 1000);
    must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1000}, NULL));
    sigsuspend(&open);
    expect(ticks == 1);

    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 42};
    must(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec when = {.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 100000}, left;
    must(timer_settime(timer, 0, &when, NULL));
    for (int i = 0; i < 5; i++) sigsuspend(&open);
    expect(value == 42 && ticks == 6);
    must(timer_gettime(timer, &left));
    usleep(3000);
    sigsuspend(&open);
    int over = timer_getoverrun(timer);
    must(timer_delete(timer));
    say("left %ld ns, overrun %d, in handlers %d\n", left.it_value.tv_nsec, over, overruns);

    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = gettid_raw();
    must(timer_create(CLOCK_REALTIME, &event, &timer));
    must(timer_settime(timer, 0, &when, NULL));
    sigsuspend(&open);
    expect(on_thread == gettid_raw());
    must(timer_delete(timer));

    must(sem_init(&in_thread, 0, 0));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_thread, .sigev_value.sival_int = 55};
    must(timer_create(CLOCK_MONOTONIC, &event, &timer));
    when = (struct itimerspec){.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000};
    must(timer_settime(timer, 0, &when, NULL));
    for (int i = 0; i < 3; i++)
        while (sem_wait(&in_thread) == -1) expect(errno == EINTR);
    must(timer_delete(timer));

    // Timers that count the time that the program computes.
    int before = ticks;
    must(setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value.tv_usec = 2000}, NULL));
    uint64_t rounds = 0;
    while (ticks == before) rounds += burn(100) | 1;
    before = ticks;
    must(setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_usec = 2000}, NULL));
    while (ticks == before) rounds += burn(100) | 1;
    say("rounds %lu\n", rounds);
}
