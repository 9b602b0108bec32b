// Memory, mutexes, condition variables, semaphores and plain races that processes share.
// run: 3 200
#include "guest.h"
#include <sys/wait.h>

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    sem_t tokens;
    long counter, racy, turn;
    long order[64];
    int next;
};

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 3), rounds = number(argc, argv, 2, 200);
    struct shared *s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    ok(pthread_mutexattr_init(&mutex));
    ok(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    ok(pthread_mutex_init(&s->mutex, &mutex));
    ok(pthread_condattr_init(&cond));
    ok(pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED));
    ok(pthread_cond_init(&s->changed, &cond));
    must(sem_init(&s->tokens, 1, 1));
    for (long i = 0; i < processes; i++) {
        if (must(fork()) != 0) continue;
        for (long n = 0; n < rounds; n++) {
            ok(pthread_mutex_lock(&s->mutex));
            s->counter++;
            ok(pthread_mutex_unlock(&s->mutex));
            long old = *(volatile long *)&s->racy;
            if (n % 16 == 0) sched_yield();
            *(volatile long *)&s->racy = old + 1;
            must(sem_wait(&s->tokens));
            if (s->next < 64) s->order[s->next++] = i;
            must(sem_post(&s->tokens));
        }
        // In turns, the last first.
        ok(pthread_mutex_lock(&s->mutex));
        while (s->turn != processes - 1 - i) ok(pthread_cond_wait(&s->changed, &s->mutex));
        say("process %ld has its turn\n", i);
        s->turn++;
        ok(pthread_cond_broadcast(&s->changed));
        ok(pthread_mutex_unlock(&s->mutex));
        _exit(0);
    }
    for (long i = 0; i < processes; i++) {
        int status;
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect(s->counter == processes * rounds && s->turn == processes);
    expect(s->racy >= 1 && s->racy <= processes * rounds);
    say("counter %ld, racy %ld, order %lu\n", s->counter, s->racy, hash_bytes(s->order, sizeof s->order));
}
