// Names of Unix sockets: files, abstract ones, none; who listens, who doesn't, and what is in the way.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/socket.h>
#include <sys/un.h>

static void named(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_un a;
    memset(&a, 0xee, sizeof a);
    socklen_t n = sizeof a;
    if (ask(fd, (struct sockaddr *)&a, &n) != 0) {
        say("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    say("%s: %u bytes, %s\n", what, n, n > 2 ? a.sun_path + (a.sun_path[0] == 0) : "-");
}

int main(void) {
    struct sockaddr_un a = {AF_UNIX, "socket"}, b = {AF_UNIX, "nowhere/socket"};
    int server = must(socket(AF_UNIX, SOCK_STREAM, 0)), client = must(socket(AF_UNIX, SOCK_STREAM, 0));
    tell(connect(client, (struct sockaddr *)&a, sizeof a));
    tell(bind(server, (struct sockaddr *)&b, sizeof b));
    tell(bind(server, (struct sockaddr *)&a, sizeof a));
    tell(bind(client, (struct sockaddr *)&a, sizeof a));
    tell(connect(client, (struct sockaddr *)&a, sizeof a));
    tell(accept(server, NULL, NULL));
    tell(listen(server, 1));
    tell(connect(client, (struct sockaddr *)&a, sizeof a));
    tell(connect(client, (struct sockaddr *)&a, sizeof a));
    int peer = must(accept4(server, NULL, NULL, SOCK_CLOEXEC));
    named("server", server, getsockname);
    named("client", client, getsockname);
    named("client's peer", client, getpeername);
    named("peer's peer", peer, getpeername);
    named("server's peer", server, getpeername);
    struct ucred who;
    socklen_t n = sizeof who;
    must(getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n));
    expect(who.pid == getpid() && n == sizeof who);
    must(fcntl(server, F_SETFL, O_NONBLOCK));
    tell(accept(server, NULL, NULL));
    struct sockaddr_un little;
    n = 4;
    must(getsockname(server, (struct sockaddr *)&little, &n));
    say("little room: %u\n", n);
    n = (socklen_t)-1;
    tell(getsockname(server, (struct sockaddr *)&little, &n));
    a.sun_path[0] = 0;
    snprintf(a.sun_path + 1, 60, "abstract-%d-%ld", getpid(), now_ns(CLOCK_REALTIME));
    int other = must(socket(AF_UNIX, SOCK_DGRAM, 0));
    must(bind(other, (struct sockaddr *)&a, sizeof a));
    int same = must(socket(AF_UNIX, SOCK_DGRAM, 0));
    tell(bind(same, (struct sockaddr *)&a, sizeof a));
    // The kernel chooses a name.
    must(bind(same, (struct sockaddr *)&a, 2));
    tell(sendto(same, "hello", 5, 0, (struct sockaddr *)&a, sizeof a));
    struct sockaddr_un from;
    n = sizeof from;
    char text[16];
    expect(recvfrom(other, text, 16, 0, (struct sockaddr *)&from, &n) == 5);
    say("from a name of %u bytes\n", n);
    tell(unlink("socket"));
    tell(socket(AF_UNIX, 77, 0));
    tell(socket(999, SOCK_STREAM, 0));
    int v = 0;
    n = 4;
    must(getsockopt(server, SOL_SOCKET, SO_TYPE, &v, &n));
    say("type %d\n", v);
    n = 2;
    must(getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &v, &n));
    say("%u bytes of an answer\n", n);
    tell(getsockopt(server, SOL_SOCKET, 9999, &v, &n));
    tell(setsockopt(server, SOL_SOCKET, SO_SNDBUF, &v, 1));
}
