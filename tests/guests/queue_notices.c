// mq_notify: a signal, a thread or nothing when a message comes into an empty queue; once only, for one process only.
// libraries: -lrt
#include "guest.h"
#include <mqueue.h>

static volatile sig_atomic_t signals, value, code;
static sem_t in_thread;
static mqd_t queue;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    value = info->si_value.sival_int;
    code = info->si_code;
    signals++;
}

static void by_thread(union sigval v) {
    char text[16];
    expect(v.sival_int == 4321);
    expect(mq_receive(queue, text, sizeof text, NULL) == 6);
    must(sem_post(&in_thread));
}

int main(void) {
    char name[64], text[16];
    snprintf(name, sizeof name, "/guest-notice-%d-%ld", getpid(), now_ns(CLOCK_MONOTONIC));
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attributes);
    if (queue < 0) {
        expect(errno == ENOSYS || errno == EACCES || errno == EMFILE);
        say("no queues here\n");
        return 0;
    }
    must(mq_unlink(name));
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGRTMIN + 1, &action, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 1234};
    must(mq_notify(queue, &event));
    fails(EBUSY, mq_notify(queue, &event));
    must(mq_send(queue, "a", 1, 0));
    while (!signals) sched_yield();
    expect(value == 1234 && code == SI_MESGQ);
    // Once: and not while there is something in it.
    must(mq_send(queue, "b", 1, 0));
    must(mq_notify(queue, &event));
    must(mq_send(queue, "c", 1, 0));
    for (int i = 0; i < 3; i++) expect(mq_receive(queue, text, sizeof text, NULL) == 1);
    expect(signals == 1);
    must(mq_send(queue, "d", 1, 0));
    while (signals < 2) sched_yield();
    must(mq_notify(queue, &event));
    must(mq_notify(queue, NULL));
    expect(mq_receive(queue, text, sizeof text, NULL) == 1);
    must(mq_send(queue, "e", 1, 0));
    expect(mq_receive(queue, text, sizeof text, NULL) == 1 && signals == 2);
    event.sigev_notify = SIGEV_NONE;
    must(mq_notify(queue, &event));
    must(mq_notify(queue, NULL));
    event.sigev_notify = 99;
    fails(EINVAL, mq_notify(queue, &event));
    must(sem_init(&in_thread, 0, 0));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_thread, .sigev_value.sival_int = 4321};
    must(mq_notify(queue, &event));
    must(mq_send(queue, "thread", 6, 0));
    while (sem_wait(&in_thread) == -1) expect(errno == EINTR);
    fails(EBADF, mq_notify(1, &event));
    say("queue %d\n", (int)queue);
}
