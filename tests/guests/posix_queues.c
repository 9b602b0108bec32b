// POSIX message queues: order by priority, sizes, full and empty, time limits, attributes, names.
// libraries: -lrt
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <mqueue.h>

int main(void) {
    char name[64];
    snprintf(name, sizeof name, "/guest-queue-%d-%ld", getpid(), now_ns(CLOCK_MONOTONIC));
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16}, now;
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
    if (queue < 0) {
        expect(errno == ENOSYS || errno == EACCES || errno == EMFILE);
        say("no queues here\n");
        return 0;
    }
    fails(EEXIST, mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL));
    must(mq_getattr(queue, &now));
    expect(now.mq_maxmsg == 4 && now.mq_msgsize == 16 && now.mq_curmsgs == 0 && now.mq_flags == 0);
    char text[16];
    unsigned priority = 77;
    must(mq_send(queue, "first", 5, 1));
    must(mq_send(queue, "urgent", 6, 9));
    must(mq_send(queue, "second", 6, 1));
    must(mq_send(queue, "", 0, 0));
    must(mq_getattr(queue, &now));
    expect(now.mq_curmsgs == 4);
    struct timespec soon, past = {1, 0};
    must(clock_gettime(CLOCK_REALTIME, &soon));
    soon.tv_nsec += 2000000;
    if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
    fails(ETIMEDOUT, mq_timedsend(queue, "x", 1, 0, &soon));
    fails(ETIMEDOUT, mq_timedsend(queue, "x", 1, 0, &past));
    fails(EINVAL, mq_timedsend(queue, "x", 1, 0, &(struct timespec){0, -1}));
    fails(EMSGSIZE, mq_send(queue, "more than sixteen", 17, 0));
    fails(EINVAL, mq_send(queue, "x", 1, 40000));
    fails(EMSGSIZE, mq_receive(queue, text, 15, NULL));
    memset(text, '#', sizeof text);
    expect(mq_receive(queue, text, sizeof text, &priority) == 6 && priority == 9 && memcmp(text, "urgent#", 7) == 0);
    expect(mq_receive(queue, text, sizeof text, &priority) == 5 && priority == 1 && memcmp(text, "first", 5) == 0);
    expect(mq_timedreceive(queue, text, sizeof text, NULL, &past) == 6);
    expect(mq_receive(queue, text, sizeof text, &priority) == 0 && priority == 0);
    fails(ETIMEDOUT, mq_timedreceive(queue, text, sizeof text, NULL, &past));
    // All that can be changed is whether it waits.
    attributes = (struct mq_attr){.mq_flags = O_NONBLOCK, .mq_maxmsg = 99};
    must(mq_setattr(queue, &attributes, &now));
    expect(now.mq_flags == 0);
    must(mq_getattr(queue, &now));
    expect(now.mq_flags == O_NONBLOCK && now.mq_maxmsg == 4);
    fails(EAGAIN, mq_receive(queue, text, sizeof text, NULL));
    mqd_t reader = must(mq_open(name, O_RDONLY));
    fails(EBADF, mq_send(reader, "x", 1, 0));
    must(mq_unlink(name));
    fails(ENOENT, mq_unlink(name));
    fails(ENOENT, mq_open(name, O_RDWR));
    fails(EINVAL, mq_open("without-slash", O_RDWR));
    fails(EACCES, syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, NULL));
    must(mq_send(queue, "still", 5, 3));
    expect(mq_receive(reader, text, sizeof text, &priority) == 5 && priority == 3);
    must(mq_close(reader));
    fails(EBADF, mq_receive(reader, text, sizeof text, NULL));
    say("queue %d\n", (int)queue);
}
