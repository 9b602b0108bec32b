// A signal for the process is lost by nobody: not by threads that block it just as it comes, and not by threads that end just then.
#include "guest.h"
#include <stdatomic.h>
enum { SENT = 300, WORKERS = 2 };
static atomic_int got, done;
static void handler(int number) { (void)number; atomic_fetch_add(&got, 1); }

static void *blocks_and_unblocks(void *unused) {
    (void)unused;
    sigset_t all, old;
    sigfillset(&all);
    while (!atomic_fetch_add(&done, 0)) {
        ok(pthread_sigmask(SIG_SETMASK, &all, &old));
        ok(pthread_sigmask(SIG_SETMASK, &old, NULL));
    }
    return NULL;
}

static void *ends(void *unused) { return unused; }

static void *makes_threads(void *unused) {
    (void)unused;
    while (!atomic_fetch_add(&done, 0)) {
        pthread_t t;
        ok(pthread_create(&t, NULL, ends, NULL));
        ok(pthread_join(t, NULL));
    }
    return NULL;
}

static void part(const char *name, void *(*body)(void *)) {
    pthread_t workers[WORKERS];
    sigset_t usr1, old;
    atomic_store(&got, 0);
    atomic_store(&done, 0);
    for (int i = 0; i < WORKERS; i++) ok(pthread_create(&workers[i], NULL, body, NULL));
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ok(pthread_sigmask(SIG_BLOCK, &usr1, &old));
    for (int i = 0; i < SENT; i++) {
        must(kill(getpid(), SIGUSR1));
        for (int waited = 0; atomic_load(&got) <= i; waited++) {
            if (waited == 5000) {
                say("%s: signal lost\n", name);
                exit(1);
            }
            usleep(1000);
        }
    }
    atomic_store(&done, 1);
    for (int i = 0; i < WORKERS; i++) ok(pthread_join(workers[i], NULL));
    ok(pthread_sigmask(SIG_SETMASK, &old, NULL));
    say("%s: %d\n", name, atomic_load(&got));
}

int main(void) {
    signal(SIGUSR1, handler);
    part("masks", blocks_and_unblocks);
    part("ends", makes_threads);
}
