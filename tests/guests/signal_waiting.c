// Waiting for signals: sigsuspend, ppoll, pselect, epoll_pwait, sigtimedwait, sigwaitinfo; the race-free ways.
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int count;
static tally ready, stop;
static pthread_t main_thread;

static void handler(int number) {
    (void)number;
    count++;
}

static void *sender(void *unused) {
    while (!counted(&stop)) {
        if (sem_trywait(&ready) == 0) ok(pthread_kill(main_thread, SIGUSR1));
        sched_yield();
    }
    return unused;
}

static void *waiter(void *unused) {
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    int sum = 0;
    for (int i = 0; i < 20; i++) {
        siginfo_t info;
        expect(must(sigwaitinfo(&set, &info)) == SIGRTMIN);
        sum += info.si_value.sival_int;
    }
    return (void *)(intptr_t)sum;
}

int main(void) {
    main_thread = pthread_self();
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL));
    sigset_t block, open;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGRTMIN);
    ok(pthread_sigmask(SIG_BLOCK, &block, &open));
    sigaddset(&open, SIGRTMIN);
    pthread_t thread = start(sender, NULL);
    int instance = must(epoll_create1(0));
    struct epoll_event event;
    for (int i = 0; i < 40; i++) {
        int before = count;
        count_up(&ready);
        switch (i % 4) {
        case 0: fails(EINTR, sigsuspend(&open)); break;
        case 1: fails(EINTR, ppoll(NULL, 0, NULL, &open)); break;
        case 2: fails(EINTR, pselect(0, NULL, NULL, NULL, NULL, &open)); break;
        case 3: fails(EINTR, epoll_pwait(instance, &event, 1, -1, &open)); break;
        }
        expect(count == before + 1);
        sigset_t now;
        ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
        expect(sigismember(&now, SIGUSR1) == 1);
    }
    count_up(&stop);
    finish(thread);
    struct timespec brief = {.tv_nsec = 2000000};
    siginfo_t info;
    fails(EAGAIN, sigtimedwait(&block, NULL, &brief));
    ok(pthread_kill(pthread_self(), SIGUSR1));
    expect(must(sigtimedwait(&block, &info, &brief)) == SIGUSR1 && (info.si_code == SI_TKILL || info.si_code == SI_USER));
    say("signal from %d\n", info.si_pid);
    // Already pending when the wait begins.
    ok(pthread_kill(pthread_self(), SIGUSR1));
    fails(EINTR, sigsuspend(&open));
    ok(pthread_kill(pthread_self(), SIGUSR1));
    int number;
    ok(sigwait(&block, &number));
    expect(number == SIGUSR1);
    thread = start(waiter, NULL);
    for (int i = 0; i < 20; i++) must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
    expect((intptr_t)finish(thread) == 190);
    say("handled %d\n", count);
}
