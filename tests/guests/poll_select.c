// poll, ppoll, select and pselect, over pipes that another thread fills.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <poll.h>
#include <sys/select.h>

static int a[2], b[2];

static void *writer(void *unused) {
    (void)unused;
    for (int i = 0; i < 50; i++) {
        char byte = i;
        expect(write(i % 3 ? a[1] : b[1], &byte, 1) == 1);
        if (i % 10 == 0) usleep(500);
    }
    close(a[1]);
    close(b[1]);
    return NULL;
}

int main(void) {
    must(pipe(a));
    must(pipe(b));
    struct pollfd fds[3] = {{a[0], POLLIN, 0}, {b[0], POLLIN, 0}, {-1, POLLIN, 0x7f}};
    expect(poll(fds, 3, 0) == 0 && fds[2].revents == 0);
    fds[2].fd = 999;
    expect(poll(fds, 3, 1000) == 1 && fds[2].revents == POLLNVAL);
    fds[2].fd = -1;
    struct timespec brief = {.tv_nsec = 1000000};
    expect(ppoll(fds, 3, &brief, NULL) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(a[1], &set);
    struct timeval long_time = {.tv_sec = 100};
    expect(select(a[1] + 1, NULL, &set, NULL, &long_time) == 1 && FD_ISSET(a[1], &set));
    // Linux says how much of the time was left.
    say("left %ld.%06ld\n", long_time.tv_sec, long_time.tv_usec);
    fails(EBADF, ({ FD_ZERO(&set); FD_SET(50, &set); select(51, &set, NULL, NULL, &long_time); }));

    pthread_t thread = start(writer, NULL);
    int received = 0, rounds = 0;
    uint64_t order = 0;
    bool open_a = true, open_b = true;
    while (open_a || open_b) {
        int ready_a = 0, ready_b = 0;
        if (rounds++ % 2) {
            fds[0].fd = open_a ? a[0] : -1;
            fds[1].fd = open_b ? b[0] : -1;
            expect(poll(fds, 2, -1) > 0);
            ready_a = fds[0].revents;
            ready_b = fds[1].revents;
        } else {
            FD_ZERO(&set);
            if (open_a) FD_SET(a[0], &set);
            if (open_b) FD_SET(b[0], &set);
            struct timespec wait = {.tv_sec = 100};
            expect(pselect(b[0] > a[0] ? b[0] + 1 : a[0] + 1, &set, NULL, NULL, &wait, NULL) > 0);
            ready_a = open_a && FD_ISSET(a[0], &set);
            ready_b = open_b && FD_ISSET(b[0], &set);
        }
        char bytes[8];
        if (ready_a) {
            ssize_t n = must(read(a[0], bytes, sizeof bytes));
            received += n;
            order = mix(order + n);
            open_a = n > 0;
        }
        if (ready_b) {
            ssize_t n = must(read(b[0], bytes, 1));
            received += n;
            order = mix(order + 100 + n);
            open_b = n > 0;
        }
    }
    finish(thread);
    expect(received == 50);
    say("%d rounds, order %lu\n", rounds, order);
}
