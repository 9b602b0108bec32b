// Instances of epoll inside of each other: events come through; circles and chains that are too long are refused; exclusive waiting.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static long add(int instance, int fd, unsigned events) {
    return epoll_ctl(instance, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = events, .data.u64 = 0x100000000ul + fd});
}

int main(void) {
    int outer = must(epoll_create1(0)), inner = must(epoll_create1(EPOLL_CLOEXEC)), counter = must(eventfd(0, EFD_NONBLOCK));
    struct epoll_event got[4];
    uint64_t value = 1;
    must(add(inner, counter, EPOLLIN));
    must(add(outer, inner, EPOLLIN));
    expect(epoll_wait(outer, got, 4, 0) == 0);
    expect(write(counter, &value, 8) == 8);
    expect(epoll_wait(outer, got, 4, 0) == 1 && got[0].data.u64 == 0x100000000ul + inner && got[0].events == EPOLLIN);
    expect(epoll_wait(inner, got, 4, 0) == 1 && got[0].data.u64 == 0x100000000ul + counter);
    struct pollfd p = {outer, POLLIN, 0};
    expect(poll(&p, 1, 0) == 1);
    expect(read(counter, &value, 8) == 8);
    expect(epoll_wait(outer, got, 4, 0) == 0 && poll(&p, 1, 0) == 0);
    // By edge: said once, however often one asks.
    must(epoll_ctl(outer, EPOLL_CTL_MOD, inner, &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 7}));
    expect(write(counter, &value, 8) == 8);
    expect(epoll_wait(outer, got, 4, 0) == 1 && got[0].data.u64 == 7);
    expect(epoll_wait(outer, got, 4, 0) == 0);
    fails(ELOOP, add(inner, outer, EPOLLIN));
    fails(EINVAL, add(inner, inner, EPOLLIN));
    fails(EEXIST, add(inner, counter, EPOLLIN));
    // Chains of more than five.
    int last = outer, length = 0;
    for (; length < 10; length++) {
        int next = must(epoll_create1(0));
        if (add(next, last, EPOLLIN) != 0) break;
        last = next;
    }
    expect(errno == ELOOP && length > 0 && length < 10);
    say("chain of %d\n", length);
    int exclusive = must(epoll_create1(0));
    must(add(exclusive, counter, EPOLLIN | EPOLLEXCLUSIVE));
    expect(epoll_wait(exclusive, got, 4, 0) == 1 && got[0].events == EPOLLIN);
    fails(EINVAL, epoll_ctl(exclusive, EPOLL_CTL_MOD, counter, &(struct epoll_event){.events = EPOLLIN}));
    fails(EINVAL, add(exclusive, inner, EPOLLIN | EPOLLEXCLUSIVE));
    fails(EINVAL, add(exclusive, must(eventfd(0, 0)), EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE));
    // An open file stays watched while any descriptor of it is open.
    int copy = must(dup(counter));
    must(close(counter));
    expect(epoll_wait(inner, got, 4, 0) == 1);
    fails(EBADF, epoll_ctl(inner, EPOLL_CTL_DEL, counter, NULL));
    must(close(copy));
    expect(epoll_wait(inner, got, 4, 0) == 0);
    say("instances %d %d\n", outer, inner);
}
