// IPv6 on the loopback, if there is any: addresses with scope, both families at one socket, packet information.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void) {
    int server = socket(AF_INET6, SOCK_STREAM, 0), off = 0, on = 1;
    struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}, peer, own;
    if (server < 0) {
        expect(errno == EAFNOSUPPORT);
        say("no IPv6 here\n");
        return 0;
    }
    must(setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
    must(bind(server, (struct sockaddr *)&here, sizeof here));
    socklen_t length = sizeof here;
    must(getsockname(server, (struct sockaddr *)&here, &length));
    expect(length == sizeof here && here.sin6_port != 0);
    must(listen(server, 4));
    // By IPv4: its address appears inside of an IPv6 one.
    int a = must(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = here.sin6_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(connect(a, (struct sockaddr *)&four, sizeof four));
    length = sizeof peer;
    int b = must(accept(server, (struct sockaddr *)&peer, &length));
    expect(length == sizeof peer && IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) && peer.sin6_addr.s6_addr[12] == 127);
    expect(write(a, "four", 4) == 4);
    char text[64];
    expect(read(b, text, sizeof text) == 4);
    int c = must(socket(AF_INET6, SOCK_STREAM, 0));
    here.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
    if (connect(c, (struct sockaddr *)&here, sizeof here) != 0) {
        expect(errno == EADDRNOTAVAIL || errno == ENETUNREACH);
        say("no address of IPv6 here\n");
        return 0;
    }
    length = sizeof peer;
    must(accept(server, (struct sockaddr *)&peer, &length));
    must(getsockname(c, (struct sockaddr *)&own, &length));
    expect(peer.sin6_port == own.sin6_port && IN6_IS_ADDR_LOOPBACK(&peer.sin6_addr));
    // A datagram that says where it came in.
    int d = must(socket(AF_INET6, SOCK_DGRAM, 0));
    own.sin6_port = 0;
    must(bind(d, (struct sockaddr *)&own, sizeof own));
    must(getsockname(d, (struct sockaddr *)&own, &length));
    must(setsockopt(d, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
    must(setsockopt(d, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on));
    expect(sendto(d, "six", 3, 0, (struct sockaddr *)&own, sizeof own) == 3);
    union {
        char bytes[256];
        struct cmsghdr header;
    } control;
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    expect(recvmsg(d, &message, 0) == 3 && peer.sin6_port == own.sin6_port);
    int kinds = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h), kinds++) expect(h->cmsg_level == IPPROTO_IPV6);
    expect(kinds == 2);
    fails(EINVAL, connect(must(socket(AF_INET6, SOCK_STREAM, 0)), (struct sockaddr *)&here, 20));
    say("port %d, %s\n", ntohs(here.sin6_port), inet_ntop(AF_INET6, &own.sin6_addr, text, sizeof text));
}
