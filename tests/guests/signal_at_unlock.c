// Signals among short operations on mutexes: most come where a function that counts nothing returns, as that which gives back a mutex that nobody waits for.
// run: 1
// run: 2
#include "guest.h"
#include <stdatomic.h>
enum { SENT = 40 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static long under_mutex, handled;
static void handler(int number) { (void)number; handled++; }

static void *locks(void *unused) {
    (void)unused;
    while (!atomic_fetch_add(&stop, 0))
        for (int i = 0; i < 1000; i++) {
            ok(pthread_mutex_lock(&mutex));
            under_mutex++;
            ok(pthread_mutex_unlock(&mutex));
        }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 1);
    signal(SIGALRM, handler);
    pthread_t all[8];
    for (long i = 0; i < threads; i++) all[i] = start(locks, NULL);
    for (int i = 0; i < SENT; i++) {
        usleep(500);
        ok(pthread_kill(all[0], SIGALRM));
    }
    atomic_store(&stop, 1);
    for (long i = 0; i < threads; i++) finish(all[i]);
    expect(under_mutex % 1000 == 0 && handled > 0 && handled <= SENT);
    say("%ld threads\n", threads);
}
