// A thread tells others by a condition that nobody waits for, gives a mutex back that others want, and waits on a condition of its own: there
// signals come to it. The mutex is given back on a short way or on a long one, which depends on who wants it at that moment.
// run: 60
#include "guest.h"

static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER, wanted = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mine_changed = PTHREAD_COND_INITIALIZER, nobodys = PTHREAD_COND_INITIALIZER;
static sem_t waits, handled;
static bool ended;
static long waits_begun, turns;
static volatile sig_atomic_t signals;

static void on_signal(GUEST_UNUSED int signal) {
    signals++;
    must(sem_post(&handled));
}

static void *waiter(void *unused) {
    ok(pthread_mutex_lock(&mine));
    while (!ended) {
        ok(pthread_mutex_lock(&wanted));
        waits_begun++;
        ok(pthread_cond_broadcast(&nobodys));
        ok(pthread_mutex_unlock(&wanted));
        must(sem_post(&waits));
        ok(pthread_mutex_lock(&wanted));
        ok(pthread_cond_broadcast(&nobodys));
        ok(pthread_mutex_unlock(&wanted));
        ok(pthread_cond_wait(&mine_changed, &mine));
    }
    ok(pthread_mutex_unlock(&mine));
    return unused;
}

static void *contender(void *unused) {
    for (bool goes_on = true; goes_on;) {
        ok(pthread_mutex_lock(&wanted));
        turns++;
        goes_on = !ended;
        ok(pthread_mutex_unlock(&wanted));
        sched_yield();
    }
    return unused;
}

int main(int argc, char **argv) {
    int rounds = number(argc, argv, 1, 60);
    must(sem_init(&waits, 0, 0));
    must(sem_init(&handled, 0, 0));
    struct sigaction action = {.sa_handler = on_signal};
    must(sigaction(SIGALRM, &action, NULL));
    pthread_t a = start(waiter, NULL), b = start(contender, NULL), c = start(contender, NULL);
    for (int i = 0; i < rounds; i++) {
        must(sem_wait(&waits));
        // It gives this one back when it waits.
        ok(pthread_mutex_lock(&mine));
        ok(pthread_mutex_unlock(&mine));
        ok(pthread_kill(a, SIGALRM));
        must(sem_wait(&handled));
        ok(pthread_mutex_lock(&mine));
        if (i + 1 == rounds) {
            ok(pthread_mutex_lock(&wanted));
            ended = true;
            ok(pthread_mutex_unlock(&wanted));
        }
        ok(pthread_cond_signal(&mine_changed));
        ok(pthread_mutex_unlock(&mine));
    }
    finish(a);
    finish(b);
    finish(c);
    say("waits %ld, turns %ld, signals %d\n", waits_begun, turns, (int)signals);
}
