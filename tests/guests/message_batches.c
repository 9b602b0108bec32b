// recvmmsg and sendmmsg: as many as there are, one at least, until a time is over; a bad message in the middle.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/socket.h>

static int pair[2];
static char bodies[8][16];
static struct iovec parts[8];
static struct mmsghdr batch[8];

static void prepare(void) {
    memset(bodies, '#', sizeof bodies);
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < 8; i++) {
        parts[i] = (struct iovec){bodies[i], sizeof bodies[i]};
        batch[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
        batch[i].msg_len = 99;
    }
}

static void *sender(void *unused) {
    (void)unused;
    for (int i = 0; i < 8; i++) expect(send(pair[0], "from a thread", 13, 0) == 13);
    return NULL;
}

int main(void) {
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    for (int i = 0; i < 3; i++) expect(send(pair[0], "0123456789", 3 + i, 0) == 3 + i);
    prepare();
    expect(recvmmsg(pair[1], batch, 8, MSG_DONTWAIT, NULL) == 3);
    for (int i = 0; i < 3; i++) expect(batch[i].msg_len == (unsigned)(3 + i) && bodies[i][3 + i] == '#');
    expect(batch[3].msg_len == 99 && bodies[3][0] == '#');
    expect(send(pair[0], "only", 4, 0) == 4);
    prepare();
    expect(recvmmsg(pair[1], batch, 8, MSG_WAITFORONE, NULL) == 1 && memcmp(bodies[0], "only#", 5) == 0);
    // The time is looked at after each message only.
    struct timespec limit = {0, 0};
    expect(send(pair[0], "late", 4, 0) == 4);
    prepare();
    expect(recvmmsg(pair[1], batch, 8, 0, &limit) == 1);
    say("left %ld.%09ld\n", limit.tv_sec, limit.tv_nsec);
    limit = (struct timespec){0, -1};
    fails(EINVAL, recvmmsg(pair[1], batch, 8, 0, &limit));
    pthread_t thread = start(sender, NULL);
    prepare();
    limit = (struct timespec){1000, 0};
    expect(recvmmsg(pair[1], batch, 8, 0, &limit) == 8);
    expect(limit.tv_sec >= 0 && limit.tv_sec < 1000);
    finish(thread);
    say("left %ld.%09ld\n", limit.tv_sec, limit.tv_nsec);
    fails(EAGAIN, recvmmsg(pair[1], batch, 8, MSG_DONTWAIT, NULL));
    expect(recvmmsg(pair[1], batch, 0, MSG_DONTWAIT, NULL) == 0);
    // Sending stops at the first that fails; the others are as if they had not been there.
    prepare();
    parts[2].iov_base = (void *)8;
    expect(sendmmsg(pair[0], batch, 5, 0) == 2 && batch[0].msg_len == 16 && batch[1].msg_len == 16 && batch[2].msg_len == 99);
    fails(EFAULT, sendmmsg(pair[0], batch + 2, 3, 0));
    prepare();
    expect(recvmmsg(pair[1], batch, 8, MSG_DONTWAIT, NULL) == 2);
    // Receiving, too; the error comes with the next call.
    for (int i = 0; i < 3; i++) expect(send(pair[0], "abc", 3, 0) == 3);
    prepare();
    parts[1].iov_base = (void *)8;
    expect(recvmmsg(pair[1], batch, 3, MSG_DONTWAIT, NULL) == 1);
    ssize_t n = recv(pair[1], bodies[0], 16, MSG_DONTWAIT);
    say("after the bad one: %s\n", n >= 0 ? "a message" : strerrorname_np(errno));
    fails(EFAULT, recvmmsg(pair[1], (struct mmsghdr *)8, 3, MSG_DONTWAIT, NULL));
    fails(ENOTSOCK, sendmmsg(1, batch, 1, 0));
}
