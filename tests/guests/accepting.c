// accept and accept4: flags of the new descriptor, addresses that don't fit, nobody waiting, what doesn't listen.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_in here = {.sin_family = AF_INET};

static int client(void) {
    int fd = must(socket(AF_INET, SOCK_STREAM, 0));
    must(connect(fd, (struct sockaddr *)&here, sizeof here));
    return fd;
}

int main(void) {
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    must(bind(server, (struct sockaddr *)&here, sizeof here));
    socklen_t length = sizeof here;
    must(getsockname(server, (struct sockaddr *)&here, &length));
    fails(EINVAL, accept(server, NULL, NULL));
    must(listen(server, 4));
    int listens = 0;
    length = sizeof listens;
    must(getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length));
    expect(listens == 1);
    fails(EAGAIN, accept(server, NULL, NULL));
    struct sockaddr_in peer, own;
    int a = client();
    length = sizeof own;
    must(getsockname(a, (struct sockaddr *)&own, &length));
    struct pollfd p = {server, POLLIN, 0};
    expect(poll(&p, 1, -1) == 1);
    length = sizeof peer;
    int fd = must(accept4(server, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    expect(length == sizeof peer && peer.sin_port == own.sin_port && peer.sin_addr.s_addr == own.sin_addr.s_addr);
    expect(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_NONBLOCK));
    char text[4];
    fails(EAGAIN, read(fd, text, 4));
    // What the server's socket has is not handed on.
    int b = client();
    expect(poll(&p, 1, -1) == 1);
    memset(&peer, '#', sizeof peer);
    length = 4;
    int second = must(accept(server, (struct sockaddr *)&peer, &length));
    expect(length == sizeof peer && ((char *)&peer)[4] == '#' && peer.sin_port == (getsockname(b, (struct sockaddr *)&own, (socklen_t[]){sizeof own}), own.sin_port));
    expect(fcntl(second, F_GETFD) == 0 && !(fcntl(second, F_GETFL) & O_NONBLOCK));
    // The address is looked at when the connection is already taken: it is lost.
    int c = client();
    expect(poll(&p, 1, -1) == 1);
    length = sizeof peer;
    fails(EFAULT, accept(server, (struct sockaddr *)8, &length));
    fails(EINVAL, accept4(server, NULL, NULL, 1));
    length = (socklen_t)-5;
    int d = client();
    expect(poll(&p, 1, -1) == 1);
    fails(EINVAL, accept(server, (struct sockaddr *)&peer, &length));
    fails(ENOTSOCK, accept(1, NULL, NULL));
    fails(EBADF, accept(77, NULL, NULL));
    fails(EOPNOTSUPP, accept(must(socket(AF_INET, SOCK_DGRAM, 0)), NULL, NULL));
    fails(EINVAL, accept(a, NULL, NULL));
    // A Unix socket without a name has an address of two bytes.
    struct sockaddr_un name = {.sun_family = AF_UNIX}, other;
    int local = must(socket(AF_UNIX, SOCK_STREAM, 0)), from = must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(local, (struct sockaddr *)&name, sizeof(sa_family_t)));
    length = sizeof name;
    must(getsockname(local, (struct sockaddr *)&name, &length));
    must(listen(local, 1));
    must(connect(from, (struct sockaddr *)&name, length));
    length = sizeof other;
    must(accept(local, (struct sockaddr *)&other, &length));
    expect(length == 2 && other.sun_family == AF_UNIX);
    say("ports %d and %d, descriptors %d %d\n", ntohs(here.sin_port), ntohs(own.sin_port), c, d);
}
