// getsockopt and setsockopt: what is set is read back, lengths that are too small or too large, what only can be read.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int fd;

static int get(int level, int option) {
    int value = -7;
    socklen_t length = sizeof value;
    must(getsockopt(fd, level, option, &value, &length));
    expect(length == sizeof value || length == 1);
    return length == 1 ? value & 255 : value;
}

static void set(int level, int option, int value) { must(setsockopt(fd, level, option, &value, sizeof value)); }

int main(void) {
    fd = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    expect(get(SOL_SOCKET, SO_TYPE) == SOCK_STREAM && get(SOL_SOCKET, SO_DOMAIN) == AF_INET && get(SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    expect(get(SOL_SOCKET, SO_ERROR) == 0 && get(SOL_SOCKET, SO_ACCEPTCONN) == 0);
    static const int switches[][2] = {{SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_BROADCAST}, {SOL_SOCKET, SO_REUSEPORT}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_CORK}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        expect(get(switches[i][0], switches[i][1]) == 0);
        set(switches[i][0], switches[i][1], 5);
        expect(get(switches[i][0], switches[i][1]) != 0);
    }
    // The kernel doubles what is asked for.
    set(SOL_SOCKET, SO_RCVBUF, 20000);
    set(SOL_SOCKET, SO_SNDBUF, 1);
    expect(get(SOL_SOCKET, SO_RCVBUF) == 40000 && get(SOL_SOCKET, SO_SNDBUF) > 2);
    set(SOL_SOCKET, SO_PRIORITY, 3);
    expect(get(SOL_SOCKET, SO_PRIORITY) == 3);
    set(SOL_IP, IP_TTL, 33);
    set(SOL_IP, IP_TOS, 0x10);
    expect(get(SOL_IP, IP_TTL) == 33 && get(SOL_IP, IP_TOS) == 0x10);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 77);
    expect(get(IPPROTO_TCP, TCP_KEEPIDLE) == 77);
    struct linger linger = {1, 9}, back = {0, 0};
    socklen_t length = sizeof back;
    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    must(getsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &length));
    expect(back.l_onoff == 1 && back.l_linger == 9);
    struct timeval wait = {3, 4000}, waits = {0, 0};
    length = sizeof waits;
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait));
    must(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &waits, &length));
    expect(waits.tv_sec == 3 && waits.tv_usec == 4000);
    char algorithm[16] = "#";
    length = sizeof algorithm;
    must(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &length));
    say("congestion %s, segment %d, cpu %d\n", algorithm, get(IPPROTO_TCP, TCP_MAXSEG), get(SOL_SOCKET, SO_INCOMING_CPU));
    uint64_t cookie = 0;
    length = sizeof cookie;
    must(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length));
    expect(cookie != 0);
    say("cookie %lu\n", cookie);
    struct tcp_info info;
    memset(&info, '#', sizeof info);
    length = 10;
    must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    expect(length == 10 && ((char *)&info)[10] == '#' && info.tcpi_state == 7);
    // A short buffer gets a part, a long one no more than there is.
    int value[4] = {-7, -7, -7, -7};
    length = 2;
    must(getsockopt(fd, SOL_SOCKET, SO_TYPE, value, &length));
    expect(length == 2 && value[0] == (int)0xffff0001);
    length = sizeof value;
    must(getsockopt(fd, SOL_SOCKET, SO_TYPE, value, &length));
    expect(length == 4 && value[0] == 1 && value[1] == -7);
    length = (socklen_t)-1;
    fails(EINVAL, getsockopt(fd, SOL_SOCKET, SO_TYPE, value, &length));
    length = 0;
    tell(getsockopt(fd, SOL_SOCKET, SO_TYPE, value, &length));
    // Too small for a list: the length that is needed comes back with the error.
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    gid_t groups[256];
    length = 0;
    int r = getsockopt(pair[0], SOL_SOCKET, SO_PEERGROUPS, groups, &length);
    expect(r == 0 ? length == 0 : errno == ERANGE && length > 0);
    say("groups: %d, %u bytes\n", r, length);
    fails(ENOPROTOOPT, setsockopt(fd, SOL_SOCKET, SO_TYPE, value, 4));
    fails(ENOPROTOOPT, getsockopt(fd, SOL_SOCKET, 9999, value, &length));
    fails(EINVAL, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, value, 2));
    fails(EFAULT, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, (void *)8, 4));
    length = 4;
    fails(EFAULT, getsockopt(fd, SOL_SOCKET, SO_TYPE, (void *)8, &length));
    fails(ENOTSOCK, getsockopt(0, SOL_SOCKET, SO_TYPE, value, &length));
    fails(EDOM, setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 2000000}, sizeof wait));
    fails(ENODEV, setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuchdevice", 13));
}
