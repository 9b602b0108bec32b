// Epoll by edge, by level, once; what a change of interest does; errors.
// flags: -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int ep;

static void wait_for(const char *what) {
    struct epoll_event e[4];
    int n = must(epoll_wait(ep, e, 4, 0));
    say("%s: %d", what, n);
    for (int i = 0; i < n; i++) say(" %x/%lx", e[i].events, e[i].data.u64);
    say("\n");
}

int main(void) {
    ep = must(epoll_create1(EPOLL_CLOEXEC));
    int tube[2];
    must(pipe2(tube, O_NONBLOCK));
    char text[16];
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = 0x123456789abc};
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, tube[0], &e));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, tube[0], &e));
    wait_for("empty");
    tell(write(tube[1], "abc", 3));
    wait_for("an edge");
    wait_for("no edge");
    tell(write(tube[1], "def", 3));
    wait_for("another edge");
    tell(epoll_ctl(ep, EPOLL_CTL_MOD, tube[0], &e));
    wait_for("asked again");
    e.events = EPOLLIN;
    tell(epoll_ctl(ep, EPOLL_CTL_MOD, tube[0], &e));
    wait_for("level");
    wait_for("level still");
    tell(read(tube[0], text, 16));
    wait_for("read");
    e.events = EPOLLIN | EPOLLONESHOT;
    tell(epoll_ctl(ep, EPOLL_CTL_MOD, tube[0], &e));
    tell(write(tube[1], "abc", 3));
    wait_for("once");
    wait_for("not again");
    tell(epoll_ctl(ep, EPOLL_CTL_MOD, tube[0], &e));
    must(close(tube[1]));
    wait_for("hung up");
    tell(epoll_ctl(ep, EPOLL_CTL_DEL, tube[0], NULL));
    tell(epoll_ctl(ep, EPOLL_CTL_DEL, tube[0], NULL));
    int dir = must(open(".", O_RDONLY));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, dir, &e));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &e));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, 999, &e));
    tell(epoll_ctl(dir, EPOLL_CTL_ADD, tube[0], &e));
    tell(epoll_ctl(ep, 77, tube[0], &e));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, tube[0], NULL));
    tell(epoll_wait(ep, &e, 0, 0));
    tell(epoll_wait(ep, &e, -1, 0));
    tell(epoll_wait(dir, &e, 1, 0));
    tell(epoll_create1(77));
    tell(epoll_create(0));
    int inner = must(epoll_create1(0)), event = must(eventfd(1, 0));
    e = (struct epoll_event){.events = EPOLLIN, .data.u64 = 7};
    tell(epoll_ctl(inner, EPOLL_CTL_ADD, event, &e));
    tell(epoll_ctl(ep, EPOLL_CTL_ADD, inner, &e));
    tell(epoll_ctl(inner, EPOLL_CTL_ADD, ep, &e));
    wait_for("one in another");
    sigset_t none;
    sigemptyset(&none);
    tell(epoll_pwait(ep, &e, 1, 1000, &none));
    must(close(event));
    tell(epoll_pwait(ep, &e, 1, 2, &none));
}
