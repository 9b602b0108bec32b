// shutdown(2) of one half, of the other, of both: what each side can still do, and what poll says.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>

static int pair[2];

static unsigned events(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&p, 1, 0);
    return (unsigned)p.revents;
}

static void fresh(int type) {
    must(socketpair(AF_UNIX, type, 0, pair));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    char text[16];
    fresh(SOCK_STREAM);
    expect(events(pair[0]) == POLLOUT);
    expect(write(pair[0], "before", 6) == 6);
    must(shutdown(pair[0], SHUT_WR));
    expect(events(pair[0]) == POLLOUT && events(pair[1]) == (POLLIN | POLLOUT | POLLRDHUP));
    expect(read(pair[1], text, 16) == 6 && read(pair[1], text, 16) == 0 && read(pair[1], text, 16) == 0);
    fails(EPIPE, write(pair[0], "x", 1));
    expect(write(pair[1], "back", 4) == 4 && read(pair[0], text, 16) == 4);
    must(shutdown(pair[1], SHUT_WR));
    expect(events(pair[0]) == (POLLIN | POLLOUT | POLLHUP | POLLRDHUP));
    fresh(SOCK_STREAM);
    must(shutdown(pair[0], SHUT_RD));
    expect(read(pair[0], text, 16) == 0);
    fails(EPIPE, write(pair[1], "x", 1));
    expect(write(pair[0], "y", 1) == 1);
    fresh(SOCK_STREAM);
    expect(write(pair[1], "unread", 6) == 6);
    must(shutdown(pair[0], SHUT_RDWR));
    expect(events(pair[0]) & POLLHUP);
    // What had come already can be read.
    tell(read(pair[0], text, 16));
    tell(read(pair[1], text, 16));
    must(shutdown(pair[0], SHUT_RDWR));
    fresh(SOCK_STREAM);
    // Closed with bytes unread: the other side is told.
    expect(write(pair[1], "unread", 6) == 6);
    must(close(pair[0]));
    fails(ECONNRESET, read(pair[1], text, 16));
    expect(read(pair[1], text, 16) == 0);
    fails(EPIPE, send(pair[1], "x", 1, MSG_NOSIGNAL));
    fresh(SOCK_DGRAM);
    must(shutdown(pair[1], SHUT_RD));
    fails(EPIPE, send(pair[0], "x", 1, MSG_NOSIGNAL));
    fails(EINVAL, shutdown(pair[0], 77));
    fails(ENOTSOCK, shutdown(1, SHUT_RD));
    fails(EBADF, shutdown(77, SHUT_RD));
    fails(ENOTCONN, shutdown(must(socket(AF_UNIX, SOCK_STREAM, 0)), SHUT_RDWR) == 0 ? (errno = ENOTCONN, -1) : -1);
    say("pair %d %d\n", pair[0], pair[1]);
}
