// A robust mutex in shared memory whose owner, a thread of another process, ends: the next process learns of it, and repairs it or not.
#include "guest.h"
#include <sys/wait.h>

struct shared {
    pthread_mutex_t lock, second;
    sem_t held, waits;
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
    must(sem_init(&s->waits, 1, 0));
}

static void *owner(void *waited_for) {
    ok(pthread_mutex_lock(&s->lock));
    ok(pthread_mutex_lock(&s->second));
    s->state++;
    must(sem_post(&s->held));
    if (waited_for) must(sem_wait(&s->waits));
    return NULL;
}

static void take(void) {
    int r = pthread_mutex_lock(&s->lock);
    expect(r == EOWNERDEAD);
    ok(pthread_mutex_consistent(&s->lock));
    ok(pthread_mutex_unlock(&s->lock));
}

int main(void) {
    s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int protocol = 0; protocol < 2; protocol++)
        for (int way = 0; way < 2; way++) {
            make(protocol ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
            // The thread ends, its process lives on.
            pid_t pid = must(fork());
            if (pid == 0) {
                finish(start(owner, way ? s : NULL));
                for (;;) pause();
            }
            must(sem_wait(&s->held));
            if (way) {
                // Somebody is there before it ends.
                expect(pthread_mutex_trylock(&s->lock) == EBUSY);
                pid_t waiter = must(fork());
                if (waiter == 0) {
                    must(sem_post(&s->waits));
                    take();
                    _exit(5);
                }
                int status;
                expect(must(waitpid(waiter, &status, 0)) == waiter && WIFEXITED(status) && WEXITSTATUS(status) == 5);
            } else {
                take();
            }
            ok(pthread_mutex_lock(&s->lock));
            ok(pthread_mutex_unlock(&s->lock));
            // Not repaired: nobody can have it any more.
            expect(pthread_mutex_lock(&s->second) == EOWNERDEAD);
            ok(pthread_mutex_unlock(&s->second));
            expect(pthread_mutex_lock(&s->second) == ENOTRECOVERABLE);
            expect(pthread_mutex_trylock(&s->second) == ENOTRECOVERABLE);
            must(kill(pid, SIGKILL));
            must(waitpid(pid, NULL, 0));
            say("protocol %d, way %d: state %ld\n", protocol, way, s->state);
        }
}
