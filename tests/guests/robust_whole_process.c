// Robust mutexes in shared memory whose owners' process ends as a whole, while others wait for them or come later.
// run: exit
// run: fault
// run: abort
// run: kill
// run: running
// run: self
// run: term
// run: alarm
// run: exec
// run: busy 20
#include "guest.h"
#include <sys/wait.h>

#define WAITERS_BIT 0x80000000u

struct shared {
    // The first thread's, the second one's, one that nobody waits for, one that is taken and given back all the time.
    pthread_mutex_t first, second, left, busy;
    sem_t held, go;
    long state;
};

static struct shared *s;

static void make(int protocol) {
    pthread_mutexattr_t robust;
    ok(pthread_mutexattr_init(&robust));
    ok(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED));
    ok(pthread_mutexattr_setprotocol(&robust, protocol));
    pthread_mutex_t *all[] = {&s->first, &s->second, &s->left, &s->busy};
    for (int i = 0; i < 4; i++) ok(pthread_mutex_init(all[i], &robust));
    must(sem_init(&s->held, 1, 0));
    must(sem_init(&s->go, 1, 0));
    s->state = 0;
}

static void *second_owner(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&s->second));
    s->state++;
    must(sem_post(&s->held));
    for (;;) pause();
}

// Takes its locks with a second thread beside it, and ends that way.
static void owner(const char *way) {
    start(second_owner, NULL);
    ok(pthread_mutex_lock(&s->first));
    ok(pthread_mutex_lock(&s->left));
    s->state++;
    must(sem_post(&s->held));
    while (sem_wait(&s->go) != 0) expect(errno == EINTR);
    if (!strcmp(way, "exit")) _exit(7);
    if (!strcmp(way, "fault")) *(volatile int *)8 = 1;
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "self")) must(kill(getpid(), SIGKILL));
    if (!strcmp(way, "exec")) must(execl("/proc/self/exe", "robust_whole_process", "nothing", NULL));
    struct itimerval soon = {.it_value = {.tv_usec = 500}};
    if (!strcmp(way, "alarm")) {
        must(setitimer(ITIMER_REAL, &soon, NULL));
        for (;;) burn(1000);
    }
    if (!strcmp(way, "busy")) {
        must(setitimer(ITIMER_REAL, &soon, NULL));
        for (;;) {
            ok(pthread_mutex_lock(&s->busy));
            ok(pthread_mutex_unlock(&s->busy));
        }
    }
    if (!strcmp(way, "running"))
        for (;;) burn(1000);
    for (;;) pause();
}

static void repair(pthread_mutex_t *m, int r) {
    expect(r == EOWNERDEAD);
    ok(pthread_mutex_consistent(m));
    ok(pthread_mutex_unlock(m));
    ok(pthread_mutex_lock(m));
    ok(pthread_mutex_unlock(m));
}

static pid_t waiter(pthread_mutex_t *m, bool timed) {
    pid_t pid = must(fork());
    if (pid != 0) {
        // Until it waits, or is about to.
        while (!(*(volatile unsigned *)&m->__data.__lock & WAITERS_BIT)) sched_yield();
        return pid;
    }
    struct timespec late = {.tv_sec = time(NULL) + 1000};
    repair(m, timed ? pthread_mutex_timedlock(m, &late) : pthread_mutex_lock(m));
    _exit(5);
}

static int end_of(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    return status;
}

int main(int argc, char **argv) {
    const char *way = argv[1];
    if (!strcmp(way, "nothing")) return 7;
    s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    long rounds = number(argc, argv, 2, 2), died = 0;
    for (long round = 0; round < rounds; round++) {
        make(round % 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
        pid_t pid = must(fork());
        if (pid == 0) owner(way);
        must(sem_wait(&s->held));
        must(sem_wait(&s->held));
        expect(pthread_mutex_trylock(&s->first) == EBUSY);
        pid_t a = waiter(&s->first, round & 2), b = waiter(&s->second, !(round & 2));
        must(sem_post(&s->go));
        if (!strcmp(way, "kill") || !strcmp(way, "running")) must(kill(pid, SIGKILL));
        if (!strcmp(way, "term")) must(kill(pid, SIGTERM));
        // Waits for a death that only the lock tells of.
        int r = pthread_mutex_lock(&s->left);
        expect(r == EOWNERDEAD);
        expect(end_of(a) == 5 << 8 && end_of(b) == 5 << 8);
        int status = end_of(pid);
        // Not repaired: nobody can have it any more.
        ok(pthread_mutex_unlock(&s->left));
        expect(pthread_mutex_lock(&s->left) == ENOTRECOVERABLE);
        expect(pthread_mutex_trylock(&s->first) == 0);
        r = pthread_mutex_lock(&s->busy);
        expect(r == 0 || r == EOWNERDEAD);
        died += r == EOWNERDEAD;
        if (r) ok(pthread_mutex_consistent(&s->busy));
        ok(pthread_mutex_unlock(&s->busy));
        ok(pthread_mutex_unlock(&s->first));
        if (round < 2)
            say("%s, protocol %ld: exit %d, signal %d, state %ld\n", way, round % 2,
                WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0, s->state);
    }
    say("taken at death: %ld\n", died);
}
