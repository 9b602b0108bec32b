// A robust mutex in shared memory whose owner's process ends: by exit, by a signal, by an exec; the next process learns of it.
#include "guest.h"
#include <sys/wait.h>

struct shared {
    pthread_mutex_t lock, second;
    sem_t held;
    long state;
};

static struct shared *s;

static void make(int protocol) {
    pthread_mutexattr_t robust;
    ok(pthread_mutexattr_init(&robust));
    ok(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED));
    ok(pthread_mutexattr_setprotocol(&robust, protocol));
    ok(pthread_mutex_init(&s->lock, &robust));
    ok(pthread_mutex_init(&s->second, &robust));
    must(sem_init(&s->held, 1, 0));
}

static void *in_thread(void *unused) {
    ok(pthread_mutex_lock(&s->lock));
    s->state++;
    return unused;
}

static void dies(int way, char **argv) {
    if (way == 4) {
        // The thread ends, its process lives on.
        finish(start(in_thread, NULL));
        must(sem_post(&s->held));
        for (;;) pause();
    }
    ok(pthread_mutex_lock(&s->lock));
    ok(pthread_mutex_lock(&s->second));
    s->state++;
    must(sem_post(&s->held));
    switch (way) {
    case 0: _exit(1);
    case 1: raise(SIGKILL); break;
    case 2: execl("/proc/self/exe", argv[0], "after exec", NULL); break;
    case 3: for (;;) pause();
    }
    _exit(GUEST_FAILED);
}

int main(int argc, char **argv) {
    if (argc > 1) return 1;
    s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int protocol = 0; protocol < 2; protocol++)
        for (int way = 0; way < 5; way++) {
            make(protocol ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
            pid_t pid = must(fork());
            if (pid == 0) dies(way, argv);
            must(sem_wait(&s->held));
            if (way == 3) {
                // Killed by us while somebody waits for the lock.
                pid_t waiter = must(fork());
                if (waiter == 0) {
                    must(sem_post(&s->held));
                    int r = pthread_mutex_lock(&s->lock);
                    expect(r == EOWNERDEAD);
                    ok(pthread_mutex_consistent(&s->lock));
                    ok(pthread_mutex_unlock(&s->lock));
                    _exit(5);
                }
                must(sem_wait(&s->held));
                expect(pthread_mutex_trylock(&s->lock) == EBUSY);
                must(kill(pid, SIGKILL));
                int status;
                expect(must(waitpid(waiter, &status, 0)) == waiter && WIFEXITED(status) && WEXITSTATUS(status) == 5);
                ok(pthread_mutex_lock(&s->lock));
            } else {
                // Whether its end has come or not, we get the lock because of it.
                int r = pthread_mutex_lock(&s->lock);
                expect(r == EOWNERDEAD);
                ok(pthread_mutex_consistent(&s->lock));
            }
            ok(pthread_mutex_unlock(&s->lock));
            ok(pthread_mutex_lock(&s->lock));
            ok(pthread_mutex_unlock(&s->lock));
            if (way == 4) must(kill(pid, SIGKILL));
            else {
                // Not repaired: nobody can have it any more.
                expect(pthread_mutex_lock(&s->second) == EOWNERDEAD);
                ok(pthread_mutex_unlock(&s->second));
                expect(pthread_mutex_lock(&s->second) == ENOTRECOVERABLE);
                expect(pthread_mutex_trylock(&s->second) == ENOTRECOVERABLE);
            }
            must(waitpid(pid, NULL, 0));
            say("protocol %d, way %d: state %ld\n", protocol, way, s->state);
        }
}
