// One thread waits in every way that has a time limit, relative ones above all, while another one makes one call after the other: each wait ends
// when its time is over, however often the runtime has the thread look at something else meanwhile, and says what it says otherwise.
// run: 60
#include "guest.h"
#include <poll.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <semaphore.h>

static tally over;
static int64_t limit;

static void *disturbs(void *p) {
    int64_t end = now_ns(CLOCK_MONOTONIC) + 30000000000;
    while (!counted(&over) && now_ns(CLOCK_MONOTONIC) < end) {
        syscall(SYS_getppid);
        burn(20);
    }
    return p;
}

static struct timespec in(int64_t ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

static struct timespec at(clockid_t clock) {
    return in(now_ns(clock) + limit);
}

static int64_t begun;
static void begin(void) { begun = now_ns(CLOCK_MONOTONIC); }
static void end(const char *what) {
    int64_t took = now_ns(CLOCK_MONOTONIC) - begun;
    // The other thread goes on for longer: a wait that begins anew each time ends when that has given up.
    if (took < limit || took > limit + 1500000000) {
        say("%s: took %d ms\n", what, (int)(took / 1000000));
        exit(1);
    }
}

int main(int argc, char **argv) {
    int ms = (int)number(argc, argv, 1, 100);
    limit = ms * 1000000ll;
    pthread_t other = start(disturbs, NULL);
    struct timespec t = in(limit), rest = {77, 77};
    begin(); must(nanosleep(&t, &rest)); end("nanosleep");
    expect(rest.tv_sec == 77 && rest.tv_nsec == 77);
    begin(); ok(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &rest)); end("clock_nanosleep");
    expect(rest.tv_sec == 77 && rest.tv_nsec == 77);
    begin();
    struct timespec then = at(CLOCK_MONOTONIC);
    ok(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL)); end("clock_nanosleep until");
    begin(); expect(poll(NULL, 0, ms) == 0); end("poll");
    begin(); expect(ppoll(NULL, 0, &t, NULL) == 0); end("ppoll");
    begin(); expect(select(0, NULL, NULL, NULL, &(struct timeval){0, limit / 1000}) == 0); end("select");
    begin(); expect(pselect(0, NULL, NULL, NULL, &t, NULL) == 0); end("pselect");
    int instance = must(epoll_create1(0));
    struct epoll_event got;
    begin(); expect(epoll_wait(instance, &got, 1, ms) == 0); end("epoll_wait");
    sigset_t none;
    sigemptyset(&none);
    begin(); expect(epoll_pwait(instance, &got, 1, ms, &none) == 0); end("epoll_pwait");
    begin(); expect(syscall(SYS_epoll_pwait2, instance, &got, 1, &t, NULL, 8) == 0); end("epoll_pwait2");
    int word = 0;
    begin(); fails(ETIMEDOUT, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0)); end("futex");
    begin(); then = at(CLOCK_MONOTONIC); fails(ETIMEDOUT, syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &then, NULL, -1)); end("futex until");
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, &one, NULL));
    begin(); fails(EAGAIN, sigtimedwait(&one, NULL, &t)); end("sigtimedwait");
    int set = must(semget(IPC_PRIVATE, 1, 0600));
    begin(); fails(EAGAIN, semtimedop(set, &(struct sembuf){0, -1, 0}, 1, &t)); end("semtimedop");
    must(semctl(set, 0, IPC_RMID));
    // And in functions of libc.
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    sem_t sem;
    must(sem_init(&sem, 0, 0));
    begin(); then = at(CLOCK_REALTIME); fails(ETIMEDOUT, sem_timedwait(&sem, &then)); end("sem_timedwait");
    ok(pthread_mutex_lock(&mutex));
    begin(); then = at(CLOCK_REALTIME); expect(pthread_cond_timedwait(&cond, &mutex, &then) == ETIMEDOUT); end("pthread_cond_timedwait");
    begin(); then = at(CLOCK_REALTIME); expect(pthread_mutex_timedlock(&mutex, &then) == ETIMEDOUT); end("pthread_mutex_timedlock");
    count_up(&over);
    finish(other);
    say("all in time\n");
}
