// Credentials that a sender states itself (SCM_CREDENTIALS): its own, another's, nobody's; and what the receiver sees without.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/socket.h>

union control {
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr header;
};

static int pair[2];

static long state(struct ucred who) {
    union control control = {.header = {CMSG_LEN(sizeof who), SOL_SOCKET, SCM_CREDENTIALS}};
    memcpy(CMSG_DATA(&control.header), &who, sizeof who);
    struct iovec part = {(void *)"me", 2};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    return sendmsg(pair[0], &message, 0);
}

static struct ucred received(void) {
    char text[8];
    struct ucred who = {-1, -1, -1};
    union control control;
    struct iovec part = {text, 8};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    expect(recvmsg(pair[1], &message, 0) == 2);
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c) {
        expect(c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof who));
        memcpy(&who, CMSG_DATA(c), sizeof who);
    } else {
        expect(message.msg_controllen == 0);
    }
    return who;
}

int main(void) {
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    expect(send(pair[0], "me", 2, 0) == 2);
    expect(received().pid == -1);
    int one = 1;
    must(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
    expect(send(pair[0], "me", 2, 0) == 2);
    struct ucred who = received();
    expect(who.pid == getpid() && who.uid == geteuid() && who.gid == getegid());
    expect(state((struct ucred){getpid(), getuid(), getgid()}) == 2);
    who = received();
    expect(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    // Another's, if one may.
    long r = state((struct ucred){1, getuid(), getgid()});
    expect(r == 2 || errno == EPERM || errno == ESRCH);
    if (r == 2) expect(received().pid == 1);
    r = state((struct ucred){getpid(), getuid() + 1, getgid()});
    expect(r == 2 || errno == EPERM || errno == EINVAL);
    if (r == 2) expect(received().uid == getuid() + 1);
    r = state((struct ucred){0x3fffffff, getuid(), getgid()});
    expect(r == -1 && (errno == EPERM || errno == ESRCH));
    say("pid %d\n", who.pid);
    struct ucred peer;
    socklen_t length = sizeof peer;
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
    expect(peer.pid == getpid() && length == sizeof peer);
    length = 4;
    int only = 0;
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &only, &length));
    expect(only == getpid() && length == 4);
}
