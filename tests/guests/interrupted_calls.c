// A handler without SA_RESTART ends every call that waits with EINTR; with it some go on, and others never do.
#include "guest.h"
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static int listener, client_of, locked, queue, full_queue, semaphores, datagrams[2];
static mqd_t messages;
static struct sockaddr_un full_address = {.sun_family = AF_UNIX};
static socklen_t full_length;
static pid_t child;
static _Atomic int handled, over;
static struct iovec part;
static char data[70000];

static void handler(int number) {
    (void)number;
    handled++;
}

static long call_accept(void) { return accept(listener, NULL, NULL); }
static long call_connect(void) { return connect(client_of, (struct sockaddr *)&full_address, full_length); }
static long call_msgrcv(void) { return msgrcv(queue, data, 10, 0, 0); }
static long call_msgsnd(void) {
    *(long *)data = 1;
    return msgsnd(full_queue, data, 1000, 0);
}
static long call_semop(void) { return semop(semaphores, &(struct sembuf){0, -1, 0}, 1); }
static long call_semop_zero(void) { return semop(semaphores, &(struct sembuf){1, 0, 0}, 1); }
static long call_flock(void) { return flock(locked, LOCK_EX); }
static long call_setlkw(void) { return fcntl(locked, F_OFD_SETLKW, &(struct flock){.l_type = F_WRLCK}); }
static long call_wait4(void) { return wait4(child, NULL, 0, NULL); }
static long call_waitid(void) { return waitid(P_PID, child, NULL, WEXITED); }
static long call_mq_receive(void) { return mq_receive(messages, data, sizeof data, NULL); }
static long call_send(void) { return send(datagrams[0], data, 1000, 0); }
static long call_recvmsg(void) { return recvmsg(datagrams[0], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1}, 0); }
static long call_recvmmsg(void) { return recvmmsg(datagrams[0], &(struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}, 1, 0, NULL); }
static long call_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = 1000000});
}
static long call_clock_nanosleep(void) {
    errno = clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){.tv_sec = 1000000}, NULL);
    return errno ? -1 : 0;
}
static long call_ppoll(void) { return ppoll(NULL, 0, &(struct timespec){.tv_sec = 1000000}, NULL); }
static long call_epoll_pwait2(void) {
    struct epoll_event event;
    int instance = must(epoll_create1(0));
    long r = syscall(SYS_epoll_pwait2, instance, &event, 1, &(struct timespec){.tv_sec = 1000000}, NULL, 8);
    int error = errno;
    close(instance);
    errno = error;
    return r;
}

static const struct {
    const char *name;
    long (*call)(void);
    // With SA_RESTART it goes on.
    bool restarts;
} calls[] = {
    {"accept", call_accept, true},
    {"connect", call_connect, true},
    {"msgrcv", call_msgrcv, false},
    {"msgsnd", call_msgsnd, false},
    {"semop", call_semop, false},
    {"semop for zero", call_semop_zero, false},
    {"flock", call_flock, true},
    {"F_OFD_SETLKW", call_setlkw, true},
    {"wait4", call_wait4, true},
    {"waitid", call_waitid, true},
    {"mq_receive", call_mq_receive, true},
    {"send", call_send, true},
    {"recvmsg", call_recvmsg, true},
    {"recvmmsg", call_recvmmsg, true},
    {"sigtimedwait", call_sigtimedwait, false},
    {"clock_nanosleep", call_clock_nanosleep, false},
    {"ppoll", call_ppoll, false},
    {"epoll_pwait2", call_epoll_pwait2, false},
};

static void *target(void *p) {
    size_t which = (uintptr_t)p;
    errno = 0;
    long r = calls[which].call();
    long error = r == -1 ? errno : 0;
    over = 1;
    return (void *)error;
}

static void make(void) {
    // A listening socket whose queue is full, so that connect waits.
    listener = must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(listener, (struct sockaddr *)&full_address, sizeof(sa_family_t)));
    int full = must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(full, (struct sockaddr *)&full_address, sizeof(sa_family_t)));
    full_length = sizeof full_address;
    must(getsockname(full, (struct sockaddr *)&full_address, &full_length));
    must(listen(listener, 1));
    must(listen(full, 0));
    for (;;) {
        int s = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        if (connect(s, (struct sockaddr *)&full_address, full_length) != 0) {
            expect(errno == EAGAIN);
            close(s);
            break;
        }
    }
    client_of = must(socket(AF_UNIX, SOCK_STREAM, 0));
    queue = must(msgget(IPC_PRIVATE, 0600));
    full_queue = must(msgget(IPC_PRIVATE, 0600));
    *(long *)data = 1;
    while (msgsnd(full_queue, data, 1000, IPC_NOWAIT) == 0) continue;
    expect(errno == EAGAIN);
    semaphores = must(semget(IPC_PRIVATE, 2, 0600));
    must(semop(semaphores, &(struct sembuf){1, 1, 0}, 1));
    char name[] = "/tmp/reprise-locked-XXXXXX";
    int owner = must(mkstemp(name));
    locked = must(open(name, O_RDWR));
    must(unlink(name));
    must(flock(owner, LOCK_EX));
    must(fcntl(owner, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK}));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    while (send(datagrams[0], data, 1000, MSG_DONTWAIT) == 1000) continue;
    expect(errno == EAGAIN);
    part = (struct iovec){data, sizeof data};
    char queue_name[40];
    snprintf(queue_name, sizeof queue_name, "/reprise-guest-%d", getpid());
    messages = must(mq_open(queue_name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL));
    must(mq_unlink(queue_name));
    child = must(fork());
    if (child == 0) for (;;) pause();
}

int main(void) {
    make();
    struct sigaction action = {.sa_handler = handler};
    for (int restart = 0; restart < 2; restart++) {
        action.sa_flags = restart ? SA_RESTART : 0;
        must(sigaction(SIGUSR1, &action, NULL));
        for (uintptr_t which = 0; which < sizeof calls / sizeof *calls; which++) {
            handled = over = 0;
            pthread_t thread = start(target, (void *)which);
            if (restart && calls[which].restarts) {
                // It goes on after some handlers, and ends when the flag has gone.
                while (handled < 3) {
                    ok(pthread_kill(thread, SIGUSR1));
                    for (int i = 0; i < 10; i++) sched_yield();
                }
                expect(!over);
                action.sa_flags = 0;
                must(sigaction(SIGUSR1, &action, NULL));
            }
            while (!over) {
                ok(pthread_kill(thread, SIGUSR1));
                for (int i = 0; i < 10; i++) sched_yield();
            }
            long error = (long)finish(thread);
            if (error != EINTR) say("%s: error %ld\n", calls[which].name, error);
            expect(error == EINTR && handled > 0);
            action.sa_flags = restart ? SA_RESTART : 0;
            must(sigaction(SIGUSR1, &action, NULL));
            say("%s, restart %d: done\n", calls[which].name, restart);
        }
    }
    must(kill(child, SIGKILL));
    must(waitpid(child, NULL, 0));
    must(msgctl(queue, IPC_RMID, NULL));
    must(msgctl(full_queue, IPC_RMID, NULL));
    must(semctl(semaphores, 0, IPC_RMID));
}
