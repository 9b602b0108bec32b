// The network interfaces, asked for in every way: by ioctl, by netlink, by libc; all say the same.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int netlink_links(int *loopback) {
    int fd = must(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), links = 0;
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7, 0}, {.ifi_family = AF_UNSPEC}};
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK}, own;
    expect(sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel) == sizeof request);
    socklen_t length = sizeof own;
    must(getsockname(fd, (struct sockaddr *)&own, &length));
    expect(own.nl_family == AF_NETLINK && own.nl_pid != 0);
    for (;;) {
        static _Alignas(struct nlmsghdr) char answer[1 << 16];
        // How long it will be, without taking it.
        ssize_t n = must(recv(fd, answer, 0, MSG_PEEK | MSG_TRUNC)), r = must(recv(fd, answer, sizeof answer, 0));
        expect(n == r);
        size_t left = (size_t)r;
        for (struct nlmsghdr *m = (struct nlmsghdr *)answer; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            expect(m->nlmsg_seq == 7 && m->nlmsg_pid == own.nl_pid);
            if (m->nlmsg_type == NLMSG_DONE) {
                must(close(fd));
                return links;
            }
            expect(m->nlmsg_type == RTM_NEWLINK);
            struct ifinfomsg *info = (struct ifinfomsg *)NLMSG_DATA(m);
            if (info->ifi_flags & IFF_LOOPBACK) *loopback = info->ifi_index;
            links++;
        }
    }
}

int main(void) {
    int loopback = 0, links = netlink_links(&loopback);
    struct if_nameindex *names = if_nameindex();
    expect(names);
    int named = 0;
    while (names[named].if_index) named++;
    expect(named == links);
    if_freenameindex(names);
    int fd = must(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq one = {.ifr_ifindex = loopback};
    must(ioctl(fd, SIOCGIFNAME, &one));
    expect((int)if_nametoindex(one.ifr_name) == loopback);
    must(ioctl(fd, SIOCGIFFLAGS, &one));
    expect(one.ifr_flags & IFF_LOOPBACK);
    must(ioctl(fd, SIOCGIFMTU, &one));
    say("%d interfaces, loopback is %d, of %d bytes\n", links, loopback, one.ifr_mtu);
    must(ioctl(fd, SIOCGIFADDR, &one));
    expect(((struct sockaddr_in *)&one.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    must(ioctl(fd, SIOCGIFHWADDR, &one));
    // A list in a buffer that the structure names, far from it.
    struct ifreq *list = (struct ifreq *)must(mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct ifconf all = {.ifc_len = 1 << 16, .ifc_req = list};
    must(ioctl(fd, SIOCGIFCONF, &all));
    int addresses = all.ifc_len / (int)sizeof *list;
    bool seen = false;
    for (int i = 0; i < addresses; i++) seen |= ((struct sockaddr_in *)&list[i].ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    expect(seen);
    struct ifconf size = {.ifc_len = 0, .ifc_req = NULL};
    must(ioctl(fd, SIOCGIFCONF, &size));
    expect(size.ifc_len == all.ifc_len);
    all.ifc_len = sizeof *list;
    memset(list, '#', 2 * sizeof *list);
    must(ioctl(fd, SIOCGIFCONF, &all));
    expect(all.ifc_len == sizeof *list && ((char *)&list[1])[0] == '#' && ((char *)list)[0] != '#');
    strcpy(one.ifr_name, "nosuchdevice");
    fails(ENODEV, ioctl(fd, SIOCGIFMTU, &one));
    struct ifaddrs *every, *a;
    must(getifaddrs(&every));
    int internet = 0;
    for (a = every; a; a = a->ifa_next) internet += a->ifa_addr && a->ifa_addr->sa_family == AF_INET;
    expect(internet >= 1);
    freeifaddrs(every);
    say("%d addresses, %d in all\n", addresses, internet);
}
