// Robust mutexes in shared memory whose owner is a process that ends with them: by _exit, by a signal of its own, killed by another process, by
// becoming another program; and while somebody waits for it.
#include "guest.h"
#include <sys/wait.h>

struct shared {
    pthread_mutex_t lock[2];
    sem_t held;
    long state;
};

static struct shared *s;

static void make(void) {
    pthread_mutexattr_t robust;
    ok(pthread_mutexattr_init(&robust));
    ok(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED));
    for (int i = 0; i < 2; i++) ok(pthread_mutex_init(&s->lock[i], &robust));
    must(sem_init(&s->held, 1, 0));
}

static void *hold(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&s->lock[0]));
    ok(pthread_mutex_lock(&s->lock[1]));
    s->state++;
    must(sem_post(&s->held));
    return NULL;
}

static tally has_them;

__attribute__((noreturn)) static void *hold_and_wait(void *unused) {
    hold(unused);
    count_up(&has_them);
    for (;;) pause();
}

static void child(char how, char **argv) {
    if (how == 't') {
        // Another thread has them when the process ends.
        start(hold_and_wait, NULL);
        must(sem_wait(&has_them));
        _exit(0);
    }
    hold(NULL);
    switch (how) {
    case 'e': _exit(0);
    case 'k': kill(getpid(), SIGKILL); break;
    case 'a': abort();
    case 'x': execv("/proc/self/exe", (char *[]){argv[0], "nothing", NULL}); break;
    default:
        for (;;) pause();
    }
    _exit(GUEST_FAILED);
}

int main(int argc, char **argv) {
    if (argc > 1) return 0;
    s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (const char *how = "etkaxo"; *how; how++) {
        make();
        pid_t pid = must(fork());
        if (pid == 0) child(*how, argv);
        must(sem_wait(&s->held));
        if (*how == 'o') must(kill(pid, SIGKILL));
        // By waiting for the lock, not for the process.
        int r = pthread_mutex_lock(&s->lock[0]);
        expect(r == EOWNERDEAD);
        say("%c: state %ld\n", *how, s->state);
        ok(pthread_mutex_consistent(&s->lock[0]));
        ok(pthread_mutex_unlock(&s->lock[0]));
        must(waitpid(pid, NULL, 0));
        expect(pthread_mutex_trylock(&s->lock[1]) == EOWNERDEAD);
        ok(pthread_mutex_consistent(&s->lock[1]));
        ok(pthread_mutex_unlock(&s->lock[1]));
    }
}
