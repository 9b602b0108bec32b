// UDP on the loopback device: addresses, many messages in one call, truncation, packet information.
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int server;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void *client(void *p) {
    int fd = must(socket(AF_INET, SOCK_DGRAM, 0));
    for (int i = 0; i < 20; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, "datagram %ld.%d", (long)(intptr_t)p, i);
        expect(sendto(fd, text, n, 0, (struct sockaddr *)&address, sizeof address) == n);
    }
    struct mmsghdr many[4] = {0};
    struct iovec parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){(void *)"batched", 7};
        many[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_name = &address, .msg_namelen = sizeof address};
    }
    expect(sendmmsg(fd, many, 4, 0) == 4);
    expect(many[3].msg_len == 7);
    must(close(fd));
    return NULL;
}

int main(void) {
    server = must(socket(AF_INET, SOCK_DGRAM, 0));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(server, (struct sockaddr *)&address, sizeof address));
    socklen_t length = sizeof address;
    must(getsockname(server, (struct sockaddr *)&address, &length));
    int one = 1;
    must(setsockopt(server, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
    must(setsockopt(server, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one));
    struct timeval timeout = {.tv_usec = 1000};
    must(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    char text[64];
    fails(EAGAIN, recv(server, text, sizeof text, 0));
    timeout = (struct timeval){0};
    must(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    pthread_t a = start(client, (void *)1), b = start(client, (void *)2);
    uint64_t order = 0;
    for (int i = 0; i < 40; i++) {
        struct sockaddr_in from;
        length = sizeof from;
        ssize_t n = must(recvfrom(server, text, sizeof text, 0, (struct sockaddr *)&from, &length));
        expect(length == sizeof from);
        order = mix(order + ntohs(from.sin_port) + hash_bytes(text, n));
    }
    finish(a);
    finish(b);
    char bodies[4][4];
    struct mmsghdr many[4] = {0};
    struct iovec parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){bodies[i], sizeof bodies[i]};
        many[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    expect(recvmmsg(server, many, 4, 0, NULL) == 4);
    for (int i = 0; i < 4; i++) expect(many[i].msg_len == 4 && (many[i].msg_hdr.msg_flags & MSG_TRUNC));
    struct iovec part = {text, sizeof text};
    union {
        char bytes[256];
        struct cmsghdr header;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    expect(recvmsg(server, &message, 0) >= 7);
    long seconds = 0;
    int interface = -1;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_TIMESTAMP) seconds = ((struct timeval *)CMSG_DATA(h))->tv_usec;
        if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO) interface = ((struct in_pktinfo *)CMSG_DATA(h))->ipi_ifindex;
    }
    say("order %lu, at %ld us, interface %d\n", order, seconds, interface);
}
