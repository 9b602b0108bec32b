// Every call that makes a descriptor, when there is no number left: EMFILE, and nothing lost.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

int main(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length;
    int server = must(socket(AF_UNIX, SOCK_STREAM, 0)), client = must(socket(AF_UNIX, SOCK_STREAM, 0)), pair[2];
    must(bind(server, (struct sockaddr *)&name, sizeof(sa_family_t)));
    length = sizeof name;
    must(getsockname(server, (struct sockaddr *)&name, &length));
    must(listen(server, 1));
    must(connect(client, (struct sockaddr *)&name, length));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), (int[]){0, 1}, 8);
    struct iovec part = {(void *)"two", 3};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    expect(sendmsg(pair[0], &message, 0) == 3);
    int self = must(syscall(SYS_pidfd_open, getpid(), 0));
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 64;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    int last = -1, next;
    while ((next = dup(1)) >= 0) last = next;
    expect(errno == EMFILE && last == 63);
    sigset_t set;
    sigemptyset(&set);
    int two[2] = {-5, -6};
    fails(EMFILE, open("/dev/null", O_RDONLY));
    fails(EMFILE, creat("new", 0600));
    expect(access("new", F_OK) == -1);
    fails(EMFILE, socket(AF_INET, SOCK_STREAM, 0));
    fails(EMFILE, accept(server, NULL, NULL));
    fails(EMFILE, socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    fails(EMFILE, pipe(two));
    expect(two[0] == -5 && two[1] == -6);
    fails(EMFILE, epoll_create1(0));
    fails(EMFILE, eventfd(0, 0));
    fails(EMFILE, timerfd_create(CLOCK_MONOTONIC, 0));
    fails(EMFILE, signalfd(-1, &set, 0));
    fails(EMFILE, inotify_init1(0));
    fails(EMFILE, memfd_create("x", 0));
    fails(EMFILE, fcntl(1, F_DUPFD, 3));
    fails(EMFILE, syscall(SYS_pidfd_open, getpid(), 0));
    long r = syscall(SYS_pidfd_getfd, self, 1, 0);
    expect(r == -1 && (errno == EMFILE || errno == EPERM));
    // Of two descriptors that come there is room for one.
    must(close(last));
    char text[8];
    part = (struct iovec){text, 8};
    message.msg_controllen = sizeof control.bytes;
    memset(&control, 0, sizeof control);
    expect(recvmsg(pair[1], &message, 0) == 3 && (message.msg_flags & MSG_CTRUNC));
    expect(CMSG_FIRSTHDR(&message) && CMSG_FIRSTHDR(&message)->cmsg_len == CMSG_LEN(sizeof(int)));
    memcpy(&next, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof next);
    expect(next == last);
    must(close(last));
    // The connection still waits.
    expect(must(accept(server, NULL, NULL)) == last);
    say("last is %d\n", last);
}
