// Sockets of rarer families: netlink, packets, raw ones, ciphers of the kernel; what is not there is said so.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void) {
    tell(socket(AF_UNIX, SOCK_RAW, 0) >= 0);
    tell(socket(AF_UNIX, 99, 0));
    tell(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    tell(socket(AF_INET, SOCK_SEQPACKET, 0));
    tell(socket(AF_MAX + 5, SOCK_STREAM, 0));
    tell(socket(AF_INET, SOCK_STREAM | 1 << 20, 0));
    tell(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}));
    int raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    expect(raw >= 0 || errno == EPERM || errno == EACCES);
    say("raw: %d\n", raw >= 0);
    int packet = socket(AF_PACKET, SOCK_RAW, 0);
    expect(packet >= 0 || errno == EPERM || errno == EAFNOSUPPORT);
    say("packets: %d\n", packet >= 0);
    int ping = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    expect(ping >= 0 || errno == EACCES || errno == EPROTONOSUPPORT);
    // Events of the kernel: one may listen, unless one may not.
    int events = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT);
    if (events >= 0) {
        struct sockaddr_nl group = {.nl_family = AF_NETLINK, .nl_groups = 1};
        int r = bind(events, (struct sockaddr *)&group, sizeof group);
        expect(r == 0 || errno == EPERM);
        char text[16];
        fails(EAGAIN, recv(events, text, sizeof text, MSG_DONTWAIT) >= 0 ? (errno = EAGAIN, -1) : -1);
    }
    int algorithm = socket(AF_ALG, SOCK_SEQPACKET, 0);
    struct sockaddr_alg digest = {.salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256"};
    if (algorithm < 0 || bind(algorithm, (struct sockaddr *)&digest, sizeof digest) != 0) {
        say("no digests by the kernel\n");
        return 0;
    }
    int work = must(accept(algorithm, NULL, NULL));
    unsigned char sum[32] = {0};
    expect(send(work, "a", 1, MSG_MORE) == 1 && send(work, "bc", 2, 0) == 2);
    expect(read(work, sum, sizeof sum) == sizeof sum && sum[0] == 0xba && sum[31] == 0xad);
    say("digests by the kernel\n");
}
