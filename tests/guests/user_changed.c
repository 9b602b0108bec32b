// Threads work on while the program gives up its rights: it becomes another user, if it may, and is dumpable no more (prctl(2)). From then on it may not look into its own /proc.
#include "guest.h"
#include <sys/prctl.h>
#include <unistd.h>

enum { THREADS = 2, ROUNDS = 3000 };
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *works(void *number) {
    for (long i = 0; i < ROUNDS; i++) {
        uint64_t value = i + (long)number;
        for (int n = 0; n < 500; n++) value = mix(value);
        ok(pthread_mutex_lock(&m));
        sum += value % 1000;
        ok(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void work(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = start(works, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
}

int main(void) {
    enum { NOBODY = 65534 };
    pthread_t beside = start(works, NULL);
    usleep(20000);
    if (geteuid() == 0) must(setresuid(NOBODY, NOBODY, NOBODY));
    finish(beside);
    work();
    must(prctl(PR_SET_DUMPABLE, 0));
    work();
    say("%ld\n", sum);
}
