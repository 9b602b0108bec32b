// Signals for one thread and for the process: values by pthread_sigqueue, pending sets of each thread, whoever has the signal open gets it.
#include "guest.h"

static sigset_t set;
static tally ready, go, taken;
static long took[4];

static void *takes_its_own(void *p) {
    count_up(&ready);
    while (!counted(&go)) sched_yield();
    // All that was sent to us waits, and nothing of what was sent to the others.
    int me = (int)(intptr_t)p, sum = 0, last = -1;
    struct timespec none = {0, 0};
    siginfo_t info;
    while (sigtimedwait(&set, &info, &none) > 0) {
        expect(info.si_code == SI_QUEUE && info.si_pid == getpid() && info.si_value.sival_int / 100 == me);
        expect(info.si_value.sival_int > last);
        last = info.si_value.sival_int;
        sum += last % 100;
    }
    expect(errno == EAGAIN);
    return (void *)(intptr_t)sum;
}

static __thread volatile int mine;
static _Atomic long handled_by;
static void handler(int number) {
    (void)number;
    mine++;
    handled_by = gettid_raw();
}

static void *opens(void *unused) {
    // The only thread with the signal open.
    ok(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    count_up(&ready);
    while (mine < 1) sched_yield();
    return (void *)(gettid_raw() + 0 * (intptr_t)unused);
}

static void *waits(void *p) {
    siginfo_t info;
    for (;;) {
        // Who wakes up for a signal that another one takes is told that he was interrupted.
        while (sigwaitinfo(&set, &info) < 0) expect(errno == EINTR);
        if (info.si_value.sival_int < 0) return NULL;
        took[(intptr_t)p]++;
        count_up(&taken);
    }
}

static void *nothing(void *unused) { return unused; }

int main(void) {
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(takes_its_own, (void *)i);
    while (counted(&ready) < 4) sched_yield();
    for (int n = 0; n < 10; n++)
        for (int i = 0; i < 4; i++) ok(pthread_sigqueue(threads[i], SIGRTMIN + 2, (union sigval){.sival_int = 100 * i + n}));
    // A thread's own signals are no concern of this one.
    sigset_t pending;
    must(sigpending(&pending));
    expect(!sigismember(&pending, SIGRTMIN + 2));
    count_up(&go);
    for (int i = 0; i < 4; i++) expect((intptr_t)finish(threads[i]) == 45);
    say("each took its own\n");

    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGRTMIN + 2, &action, NULL));
    count_from_zero(&ready);
    pthread_t open = start(opens, NULL);
    while (!counted(&ready)) sched_yield();
    must(kill(getpid(), SIGRTMIN + 2));
    long id = (long)finish(open);
    expect(handled_by == id && mine == 0);
    // Nobody has it open: it waits for the process, and the first who opens it gets it.
    must(kill(getpid(), SIGRTMIN + 2));
    must(sigpending(&pending));
    expect(sigismember(&pending, SIGRTMIN + 2));
    count_from_zero(&ready);
    open = start(opens, NULL);
    id = (long)finish(open);
    expect(handled_by == id && mine == 0);
    say("the one that has it open\n");

    // Several wait: each signal is taken by exactly one.
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(waits, (void *)i);
    for (int i = 0; i < 100; i++) must(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = i}));
    while (counted(&taken) < 100) sched_yield();
    for (int i = 0; i < 4; i++) must(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = -1}));
    for (int i = 0; i < 4; i++) finish(threads[i]);
    say("taken %ld %ld %ld %ld\n", took[0], took[1], took[2], took[3]);

    // Errors: of numbers, of threads that have ended.
    expect(pthread_kill(pthread_self(), 65) == EINVAL && pthread_kill(pthread_self(), 0) == 0);
    expect(pthread_sigqueue(pthread_self(), 65, (union sigval){0}) == EINVAL);
    pthread_t ended = start(nothing, NULL);
    int r;
    while ((r = pthread_kill(ended, 0)) == 0 && pthread_tryjoin_np(ended, NULL) != 0) sched_yield();
    expect(r == 0 || r == ESRCH);
    fails(ESRCH, syscall(SYS_tgkill, getpid(), 0x3fffffff, SIGUSR1));
    fails(EINVAL, syscall(SYS_tgkill, 0, getpid(), SIGUSR1));
    fails(EINVAL, syscall(SYS_tkill, -1, SIGUSR1));
    fails(ESRCH, syscall(SYS_tgkill, getppid(), gettid_raw(), SIGUSR1));
    // Only the process itself may say that a signal comes from the kernel.
    siginfo_t forged = {.si_signo = SIGUSR1, .si_code = SI_USER};
    fails(EPERM, syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &forged));
    fails(EFAULT, syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid_raw(), SIGUSR1, (void *)8));
    say("done\n");
}
