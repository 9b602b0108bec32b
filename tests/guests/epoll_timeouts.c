// epoll_pwait2: times to the nanosecond, masks for the time of waiting, a signal that ends it; settings of busy polling.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

static volatile sig_atomic_t count;
static void handler(int number) { (void)number; count++; }

static long wait2(int fd, struct epoll_event *got, int most, const struct timespec *limit, const sigset_t *mask) {
    return syscall(SYS_epoll_pwait2, fd, got, most, limit, mask, 8);
}

int main(void) {
    int instance = must(epoll_create1(0)), counter = must(eventfd(0, EFD_NONBLOCK));
    struct epoll_event got[4] = {{0}};
    must(epoll_ctl(instance, EPOLL_CTL_ADD, counter, &(struct epoll_event){.events = EPOLLIN, .data.u32 = 5}));
    int64_t before = now_ns(CLOCK_MONOTONIC);
    expect(wait2(instance, got, 4, &(struct timespec){0, 1500000}, NULL) == 0);
    int64_t took = now_ns(CLOCK_MONOTONIC) - before;
    expect(took >= 1500000);
    expect(wait2(instance, got, 4, &(struct timespec){0, 0}, NULL) == 0);
    fails(EINVAL, wait2(instance, got, 4, &(struct timespec){0, 1000000000}, NULL));
    fails(EINVAL, wait2(instance, got, 4, &(struct timespec){-1, 0}, NULL));
    fails(EFAULT, wait2(instance, got, 4, (struct timespec *)8, NULL));
    fails(EFAULT, wait2(instance, got, 4, NULL, (sigset_t *)8));
    fails(EINVAL, syscall(SYS_epoll_pwait2, instance, got, 4, NULL, &(uint64_t){0}, 4));
    fails(EINVAL, wait2(instance, got, 0, NULL, NULL));
    fails(EINVAL, wait2(counter, got, 4, NULL, NULL));
    must(eventfd_write(counter, 1));
    expect(wait2(instance, got, 4, NULL, NULL) == 1 && got[0].data.u32 == 5);
    eventfd_t value;
    must(eventfd_read(counter, &value));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    sigset_t blocked, before_mask, open;
    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    ok(pthread_sigmask(SIG_BLOCK, &blocked, &before_mask));
    must(raise(SIGUSR1));
    expect(count == 0);
    fails(EINTR, wait2(instance, got, 4, NULL, &open));
    expect(count == 1);
    must(raise(SIGUSR1));
    expect(wait2(instance, got, 4, &(struct timespec){0, 1000}, &blocked) == 0 && count == 1);
    // An event that is there counts for more than the signal.
    must(eventfd_write(counter, 1));
    long n = wait2(instance, got, 4, NULL, &open);
    expect(n == 1 || (n == -1 && errno == EINTR));
    say("%ld events, %d signals\n", n, (int)count);
    struct {
        uint32_t busy, budget;
        uint16_t prefer, pad;
    } params = {9, 9, 9, 9};
    int r = ioctl(instance, 0x80088a02, &params);
    expect((r == 0 && params.busy == 0) || errno == ENOTTY || errno == EINVAL);
    say("took %ld ns\n", took);
}
