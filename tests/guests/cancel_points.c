// A cancellation reaches a thread in every call that may wait; cleanup handlers run in the reverse order, keys' destructors after them.
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { CALLS = 22 };

static int ends[2], full[2], pair[2], listener, instance, queue;
static sem_t empty;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static _Atomic int ready, steps;
static pthread_t main_thread;
static pid_t child;

static void first(void *p) {
    expect(steps == 1);
    steps = 2 + (int)(intptr_t)p;
}
static void second(void *p) {
    expect(steps == 0);
    steps = (int)(intptr_t)p;
}
static void destructor(void *p) {
    expect(p && steps == 2);
    steps = 3;
}
static void unlock(void *unused) {
    (void)unused;
    ok(pthread_mutex_unlock(&lock));
}

static void waits(int call) {
    char c[65536] = {0};
    struct epoll_event event;
    struct pollfd one = {ends[0], POLLIN, 0};
    struct timespec longest = {.tv_sec = 1000000};
    struct iovec part = {c, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    sigset_t set;
    int number;
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(ends[0], &fds);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    switch (call) {
    case 0: read(ends[0], c, 1); break;
    case 1: write(full[1], c, sizeof c); break;
    case 2: readv(ends[0], &part, 1); break;
    case 3: recv(pair[0], c, 1, 0); break;
    case 4: recvmsg(pair[0], &message, 0); break;
    case 5: accept(listener, NULL, NULL); break;
    case 6: poll(&one, 1, -1); break;
    case 7: select(ends[0] + 1, &fds, NULL, NULL, NULL); break;
    case 8: epoll_wait(instance, &event, 1, -1); break;
    case 9: nanosleep(&longest, NULL); break;
    case 10: clock_nanosleep(CLOCK_MONOTONIC, 0, &longest, NULL); break;
    case 11: pause(); break;
    case 12: sigwait(&set, &number); break;
    case 13: sigwaitinfo(&set, NULL); break;
    case 14: sigsuspend(&(sigset_t){0}); break;
    case 15: sem_wait(&empty); break;
    case 16: pthread_join(main_thread, NULL); break;
    case 17: waitpid(child, NULL, 0); break;
    case 18: msgrcv(queue, c, 1, 0, 0); break;
    case 19:
        ok(pthread_mutex_lock(&lock));
        pthread_cleanup_push(unlock, NULL);
        pthread_cond_wait(&never, &lock);
        pthread_cleanup_pop(1);
        break;
    case 20: sleep(1000000); break;
    case 21: for (;;) pthread_testcancel();
    }
}

static void *body(void *p) {
    ok(pthread_setspecific(key, p + 1));
    pthread_cleanup_push(first, NULL);
    pthread_cleanup_push(second, (void *)1);
    ready = 1;
    waits((int)(intptr_t)p);
    say("call %ld ended by itself\n", (long)(intptr_t)p);
    _exit(GUEST_FAILED);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    main_thread = pthread_self();
    must(pipe(ends));
    must(pipe(full));
    must(fcntl(full[1], F_SETFL, O_NONBLOCK));
    char page[4096] = {0};
    while (write(full[1], page, sizeof page) > 0) continue;
    expect(errno == EAGAIN);
    must(fcntl(full[1], F_SETFL, 0));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    listener = must(socket(AF_INET, SOCK_STREAM, 0));
    must(listen(listener, 1));
    instance = must(epoll_create1(0));
    must(sem_init(&empty, 0, 0));
    queue = must(msgget(IPC_PRIVATE, 0600));
    ok(pthread_key_create(&key, destructor));
    child = must(fork());
    if (child == 0) for (;;) pause();
    for (intptr_t call = 0; call < CALLS; call++) {
        // Half of them are cancelled as soon as they exist, the others when they have begun.
        for (int late = 0; late < 2; late++) {
            ready = steps = 0;
            pthread_t thread = start(body, (void *)call);
            while (late && !ready) sched_yield();
            if (late) for (int i = 0; i < 5; i++) sched_yield();
            ok(pthread_cancel(thread));
            expect(finish(thread) == PTHREAD_CANCELED);
            // A thread that had no time to begin has nothing to clean up.
            expect(steps == 3 || (!late && steps == 0));
        }
    }
    must(kill(child, SIGKILL));
    must(waitpid(child, NULL, 0));
    must(msgctl(queue, IPC_RMID, NULL));
    ok(pthread_mutex_lock(&lock));
    say("%d calls\n", CALLS);
}
