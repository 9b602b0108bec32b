// Time limits of calls that wait for descriptors, while other threads go on: those of sockets, and of message queues.
#include "guest.h"
#include <mqueue.h>
#include <sys/socket.h>
#include <time.h>

static int pair[2], full[2];
static mqd_t queue;
static sem_t nothing;

static void *other(void *unused) {
    // It waits for a long time, and its turns come in between.
    for (int i = 0; i < 20; i++) {
        struct timespec brief = {.tv_nsec = 3000000};
        must(nanosleep(&brief, NULL));
    }
    must(sem_wait(&nothing));
    return unused;
}

static void *receives(void *unused) {
    char c;
    fails(EAGAIN, recv(pair[0], &c, 1, 0));
    struct iovec part = {&c, 1};
    struct mmsghdr many = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    fails(EAGAIN, recvmmsg(pair[0], &many, 1, 0, NULL));
    say("nothing came\n");
    return unused;
}

static void *sends(void *unused) {
    static char much[1 << 20];
    // What fits is sent before the time is over.
    ssize_t n = must(send(full[0], much, sizeof much, 0));
    expect(n > 0 && n < (ssize_t)sizeof much);
    fails(EAGAIN, send(full[0], much, sizeof much, 0));
    say("the stream is full\n");
    return unused;
}

static void *takes(void *unused) {
    char text[8];
    struct timespec end;
    must(clock_gettime(CLOCK_REALTIME, &end));
    end.tv_nsec += 20000000;
    end.tv_sec += end.tv_nsec / 1000000000, end.tv_nsec %= 1000000000;
    fails(ETIMEDOUT, mq_timedreceive(queue, text, sizeof text, NULL, &end));
    must(mq_send(queue, "x", 1, 0));
    fails(ETIMEDOUT, mq_timedsend(queue, "y", 1, 0, &end));
    say("the queue is empty, and full\n");
    return unused;
}

int main(void) {
    struct timeval limit = {.tv_usec = 20000};
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, full));
    must(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    must(setsockopt(full[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    char name[32];
    snprintf(name, sizeof name, "/det-%d", (int)getpid());
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    queue = must(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
    must(mq_unlink(name));
    must(sem_init(&nothing, 0, 0));
    pthread_t background = start(other, NULL);
    finish(start(receives, NULL));
    finish(start(sends, NULL));
    finish(start(takes, NULL));
    must(sem_post(&nothing));
    finish(background);
    say("done\n");
}
