// epoll over pipes, eventfd and timerfd: level and edge triggered, one-shot, data words, two threads waiting on one instance.
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static int instance, event, done;
static int taken[2];

static void *waiter(void *p) {
    int me = (intptr_t)p;
    for (;;) {
        struct epoll_event got[4];
        int n = must(epoll_wait(instance, got, 4, -1));
        for (int i = 0; i < n; i++) {
            if (got[i].data.u32 == 2) return NULL;
            uint64_t value;
            ssize_t r = read(event, &value, 8);
            if (r == 8) taken[me] += value;
            else expect(errno == EAGAIN);
        }
    }
}

int main(void) {
    instance = must(epoll_create1(EPOLL_CLOEXEC));
    int ends[2];
    must(pipe2(ends, O_NONBLOCK));
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0x1122334455667788}, got[4];
    must(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &e));
    fails(EEXIST, epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &e));
    expect(epoll_wait(instance, got, 4, 0) == 0);
    expect(epoll_wait(instance, got, 4, 2) == 0);
    expect(write(ends[1], "ab", 2) == 2);
    for (int i = 0; i < 2; i++) expect(epoll_wait(instance, got, 4, -1) == 1 && got[0].data.u64 == 0x1122334455667788 && got[0].events == EPOLLIN);
    e.events = EPOLLIN | EPOLLET;
    must(epoll_ctl(instance, EPOLL_CTL_MOD, ends[0], &e));
    expect(epoll_wait(instance, got, 4, 0) == 1);
    expect(epoll_wait(instance, got, 4, 0) == 0);
    e.events = EPOLLIN | EPOLLONESHOT;
    must(epoll_ctl(instance, EPOLL_CTL_MOD, ends[0], &e));
    expect(epoll_pwait(instance, got, 4, 0, NULL) == 1);
    expect(epoll_wait(instance, got, 4, 0) == 0);
    must(epoll_ctl(instance, EPOLL_CTL_DEL, ends[0], NULL));

    int timer = must(timerfd_create(CLOCK_MONOTONIC, 0));
    struct itimerspec when = {.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 500000}, left;
    must(timerfd_settime(timer, 0, &when, NULL));
    e.events = EPOLLIN;
    e.data.fd = timer;
    must(epoll_ctl(instance, EPOLL_CTL_ADD, timer, &e));
    uint64_t expired, total = 0;
    while (total < 5) {
        expect(epoll_wait(instance, got, 4, -1) == 1 && got[0].data.fd == timer);
        expect(read(timer, &expired, 8) == 8);
        total += expired;
    }
    must(timerfd_gettime(timer, &left));
    say("%lu expirations, %ld ns to the next\n", total, left.it_value.tv_nsec);
    must(close(timer));

    event = must(eventfd(0, EFD_NONBLOCK));
    done = must(eventfd(0, EFD_SEMAPHORE));
    e = (struct epoll_event){.events = EPOLLIN, .data.u32 = 1};
    must(epoll_ctl(instance, EPOLL_CTL_ADD, event, &e));
    e.data.u32 = 2;
    must(epoll_ctl(instance, EPOLL_CTL_ADD, done, &e));
    pthread_t threads[2] = {start(waiter, (void *)0), start(waiter, (void *)1)};
    uint64_t one = 1;
    for (int i = 0; i < 200; i++) expect(write(event, &one, 8) == 8);
    while (__atomic_load_n(&taken[0], __ATOMIC_SEQ_CST) + __atomic_load_n(&taken[1], __ATOMIC_SEQ_CST) < 200) sched_yield();
    expect(write(done, &one, 8) == 8);
    finish(threads[0]);
    finish(threads[1]);
    expect(taken[0] + taken[1] == 200);
    say("taken %d and %d\n", taken[0], taken[1]);
}
