// UDP errors: nobody there (at the next call, or in the error queue), too long, no address, connected and not any more.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, nobody = here, from;
    int a = must(socket(AF_INET, SOCK_DGRAM, 0)), b = must(socket(AF_INET, SOCK_DGRAM, 0));
    socklen_t length = sizeof here;
    must(bind(a, (struct sockaddr *)&here, sizeof here));
    must(getsockname(a, (struct sockaddr *)&here, &length));
    must(bind(b, (struct sockaddr *)&nobody, sizeof nobody));
    must(getsockname(b, (struct sockaddr *)&nobody, &length));
    // b's port is free now, and stays so for long enough: nobody else binds in this run.
    must(close(b));
    char text[64];
    static char big[70000];
    fails(EDESTADDRREQ, send(a, "x", 1, 0));
    fails(EMSGSIZE, sendto(a, big, sizeof big, 0, (struct sockaddr *)&here, sizeof here));
    fails(EINVAL, sendto(a, "x", 1, 0, (struct sockaddr *)&here, 4));
    fails(EAFNOSUPPORT, sendto(a, "x", 1, 0, (struct sockaddr *)&(struct sockaddr_in){.sin_family = 77}, sizeof here));
    fails(EACCES, sendto(a, "x", 1, 0, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_port = 9, .sin_addr.s_addr = ~0u}, sizeof here));
    int client = must(socket(AF_INET, SOCK_DGRAM, 0)), one = 1;
    must(connect(client, (struct sockaddr *)&nobody, sizeof nobody));
    expect(send(client, "anybody?", 8, 0) == 8);
    struct pollfd p = {client, POLLIN, 0};
    expect(poll(&p, 1, -1) == 1 && (p.revents & POLLERR));
    fails(ECONNREFUSED, recv(client, text, 64, 0));
    fails(EAGAIN, recv(client, text, 64, MSG_DONTWAIT));
    must(setsockopt(client, SOL_IP, IP_RECVERR, &one, sizeof one));
    expect(send(client, "anybody?", 8, 0) == 8);
    expect(poll(&p, 1, -1) == 1);
    union {
        char bytes[512];
        struct cmsghdr header;
    } control;
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    // The message that did not arrive comes back, with who says so.
    expect(recvmsg(client, &message, MSG_ERRQUEUE) == 8 && memcmp(text, "anybody?", 8) == 0 && (message.msg_flags & MSG_ERRQUEUE));
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    expect(c && c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR && from.sin_port == nobody.sin_port);
    struct sock_extended_err error;
    memcpy(&error, CMSG_DATA(c), sizeof error);
    expect(error.ee_errno == ECONNREFUSED && error.ee_origin == SO_EE_ORIGIN_ICMP);
    fails(EAGAIN, recvmsg(client, &message, MSG_ERRQUEUE | MSG_DONTWAIT));
    int pending = -1;
    length = sizeof pending;
    must(getsockopt(client, SOL_SOCKET, SO_ERROR, &pending, &length));
    say("pending error %d\n", pending);
    // To somebody else although connected; then not connected any more.
    expect(sendto(client, "hello", 5, 0, (struct sockaddr *)&here, sizeof here) == 5);
    length = sizeof from;
    expect(recvfrom(a, text, 64, 0, (struct sockaddr *)&from, &length) == 5 && length == sizeof from);
    must(connect(client, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
    fails(ENOTCONN, getpeername(client, (struct sockaddr *)&from, &length));
    fails(EDESTADDRREQ, send(client, "x", 1, 0));
    say("ports %d %d\n", ntohs(here.sin_port), ntohs(nobody.sin_port));
}
