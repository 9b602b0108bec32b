// What comes beside a datagram: time stamps of several kinds, addresses, hops, lost packets; a control buffer that is too small.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SIOCGSTAMP
#define SIOCGSTAMP 0x8906
#endif
#ifndef SCM_TIMESTAMPING
#define SCM_TIMESTAMPING SO_TIMESTAMPING
#endif

static int a, b;
static char text[64];
static union {
    char bytes[512];
    struct cmsghdr header;
} control;

static struct msghdr receive(size_t room) {
    static struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = room};
    memset(&control, '#', sizeof control);
    expect(recvmsg(b, &message, 0) == 5);
    expect(control.bytes[room] == '#');
    return message;
}

int main(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a = must(socket(AF_INET, SOCK_DGRAM, 0)), b = must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(b, (struct sockaddr *)&here, sizeof here));
    socklen_t length = sizeof here;
    must(getsockname(b, (struct sockaddr *)&here, &length));
    must(connect(a, (struct sockaddr *)&here, sizeof here));
    int on = 1, stamping = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE, ttl = 44;
    int64_t before = now_ns(CLOCK_REALTIME);
    must(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on));
    must(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPING, &stamping, sizeof stamping));
    must(setsockopt(b, SOL_IP, IP_RECVTTL, &on, sizeof on));
    must(setsockopt(b, SOL_IP, IP_RECVTOS, &on, sizeof on));
    must(setsockopt(b, SOL_IP, IP_PKTINFO, &on, sizeof on));
    must(setsockopt(b, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on));
    must(setsockopt(a, SOL_IP, IP_TTL, &ttl, sizeof ttl));
    expect(send(a, "hello", 5, 0) == 5);
    struct msghdr message = receive(500);
    int kinds = 0, hops = 0;
    struct timespec stamp = {0}, three[3] = {{0}};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c), kinds++) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPING) memcpy(three, CMSG_DATA(c), sizeof three);
        if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_TTL) memcpy(&hops, CMSG_DATA(c), sizeof hops);
    }
    int64_t at = stamp.tv_sec * 1000000000ll + stamp.tv_nsec;
    expect(hops == 44 && at >= before - 1000000000ll && stamp.tv_nsec < 1000000000);
    expect(three[0].tv_sec == stamp.tv_sec && three[0].tv_nsec == stamp.tv_nsec);
    say("%d kinds, stamp %ld.%09ld\n", kinds, stamp.tv_sec, stamp.tv_nsec);
    // Stated by the sender for one message.
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } own = {.header = {CMSG_LEN(sizeof(int)), SOL_IP, IP_TTL}};
    memcpy(CMSG_DATA(&own.header), (int[]){55}, sizeof(int));
    struct iovec part = {(void *)"other", 5};
    struct msghdr out = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = own.bytes, .msg_controllen = sizeof own.bytes};
    expect(sendmsg(a, &out, 0) == 5);
    message = receive(500);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_TTL) memcpy(&hops, CMSG_DATA(c), sizeof hops);
    expect(hops == 55);
    // Room for one kind and a bit.
    expect(send(a, "again", 5, 0) == 5);
    message = receive(40);
    expect((message.msg_flags & MSG_CTRUNC) && message.msg_controllen <= 40);
    expect(send(a, "again", 5, 0) == 5);
    message = receive(0);
    expect((message.msg_flags & MSG_CTRUNC) && message.msg_controllen == 0);
    own.header.cmsg_type = 99;
    fails(EINVAL, sendmsg(a, &out, 0));
    out.msg_control = (void *)8;
    fails(EFAULT, sendmsg(a, &out, 0));
    // Without the options: asked for afterwards.
    struct timeval last;
    int r = ioctl(b, SIOCGSTAMP, &last);
    expect(r == 0 || errno == ENOENT);
    say("the last: %d\n", r);
}
