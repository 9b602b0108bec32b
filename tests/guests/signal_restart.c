// A signal reaches a thread that blocks: with SA_RESTART the call goes on, without it the call fails with EINTR. In reads, waits, sleeps and polls.
#include "guest.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

static int ends[2], pair[2], instance;
static tally handled, over;
static uint32_t word;
static sem_t semaphore;

static void handler(int number) {
    (void)number;
    count_up(&handled);
}

static void *target(void *p) {
    char c;
    long r = 0;
    struct epoll_event event;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    errno = 0;
    switch ((intptr_t)p) {
    case 0: r = read(ends[0], &c, 1); break;
    case 1: r = recv(pair[0], &c, 1, 0); break;
    case 2: r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0); break;
    case 3: r = poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1); break;
    case 4: r = nanosleep(&(struct timespec){.tv_sec = 1000000}, NULL); break;
    case 5: r = epoll_wait(instance, &event, 1, -1); break;
    case 6: r = select(ends[0] + 1, &set, NULL, NULL, NULL); break;
    case 7: r = pause(); break;
    case 8: r = sem_wait(&semaphore); break;
    }
    long result = r < 0 ? -errno : r;
    count_up(&over);
    return (void *)result;
}

int main(void) {
    must(pipe(ends));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    instance = must(epoll_create1(0));
    must(sem_init(&semaphore, 0, 0));
    struct sigaction action = {.sa_handler = handler};
    for (int restart = 0; restart < 2; restart++) {
        action.sa_flags = restart ? SA_RESTART : 0;
        must(sigaction(SIGUSR1, &action, NULL));
        for (intptr_t which = 0; which < 9; which++) {
            count_from_zero(&handled);
            count_from_zero(&over);
            pthread_t thread = start(target, (void *)which);
            bool restarts = restart && (which <= 2 || which == 8);
            if (restarts) {
                // Let it be interrupted a few times, then let it have what it waits for.
                while (counted(&handled) < 3) {
                    ok(pthread_kill(thread, SIGUSR1));
                    for (int i = 0; i < 20; i++) sched_yield();
                }
                switch (which) {
                case 0: expect(write(ends[1], "x", 1) == 1); break;
                case 1: expect(send(pair[1], "x", 1, 0) == 1); break;
                case 2:
                    word = 1;
                    while (!counted(&over)) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
                    word = 0;
                    break;
                case 8: must(sem_post(&semaphore)); break;
                }
                long r = (long)finish(thread);
                // The futex may have found its word changed before it waited again.
                expect(r == (which == 0 || which == 1) || (which == 2 && r == -EAGAIN));
            } else {
                while (!counted(&over)) {
                    ok(pthread_kill(thread, SIGUSR1));
                    for (int i = 0; i < 20; i++) sched_yield();
                }
                expect((long)finish(thread) == -EINTR);
            }
            say("restart %d, call %ld: handled %d\n", restart, (long)which, counted(&handled));
        }
    }
}
