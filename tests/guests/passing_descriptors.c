// Descriptors, credentials and time stamps sent through Unix sockets (SCM_RIGHTS and its kin).
#include "guest.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static int pair[2];

static void send_descriptors(int socket, const int *fds, int count, char byte) {
    struct iovec part = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(10 * sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    expect(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptors(int socket, int *fds, int most, int *flags) {
    char byte;
    struct iovec part = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(10 * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(most * sizeof(int))};
    expect(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
    *flags = message.msg_flags;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header) return 0;
    expect(header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS);
    int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    return count;
}

static void *receiver(void *unused) {
    (void)unused;
    int got[10], flags;
    expect(receive_descriptors(pair[1], got, 3, &flags) == 3);
    say("received %d %d %d\n", got[0], got[1], got[2]);
    expect(fcntl(got[0], F_GETFD) == FD_CLOEXEC);
    expect(write(got[1], "by the copy", 11) == 11);
    for (int i = 0; i < 3; i++) must(close(got[i]));
    return NULL;
}

int main(void) {
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int ends[2], fds[3], flags;
    must(pipe(ends));
    fds[0] = ends[0], fds[1] = ends[1], fds[2] = 1;
    pthread_t thread = start(receiver, NULL);
    send_descriptors(pair[0], fds, 3, 'd');
    char text[32];
    expect(read(ends[0], text, sizeof text) == 11 && memcmp(text, "by the copy", 11) == 0);
    finish(thread);
    // More than there is room for: cut off, and said so.
    send_descriptors(pair[0], (int[]){0, 1, 2, 0, 1}, 5, 'e');
    int got[10];
    int count = receive_descriptors(pair[1], got, 1, &flags);
    expect(count >= 1 && count <= 2 && (flags & MSG_CTRUNC));
    for (int i = 0; i < count; i++) must(close(got[i]));

    // Credentials and a time stamp beside them.
    int one = 1, datagram[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram));
    must(setsockopt(datagram[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
    must(setsockopt(datagram[1], SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one));
    expect(send(datagram[0], "hello", 5, 0) == 5);
    struct iovec part = {text, sizeof text};
    union {
        char bytes[256];
        struct cmsghdr header;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    expect(recvmsg(datagram[1], &message, 0) == 5);
    struct ucred who = {0};
    struct timespec stamp = {0};
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_type == SCM_CREDENTIALS) memcpy(&who, CMSG_DATA(h), sizeof who);
        if (h->cmsg_type == SCM_TIMESTAMPNS) memcpy(&stamp, CMSG_DATA(h), sizeof stamp);
    }
    expect(who.pid == getpid());
    say("sent by %d as %u at %ld.%09ld\n", who.pid, who.uid, stamp.tv_sec, stamp.tv_nsec);
    struct ucred peer;
    socklen_t length = sizeof peer;
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
    expect(peer.pid == getpid());
}
