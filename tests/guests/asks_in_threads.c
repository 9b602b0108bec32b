// Threads ask of files and of the machine all the time, in calls that don't wait, and change nothing: one may be in such a call at any moment.
// run: 3 300
#include "guest.h"
#include <sys/statfs.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static int rounds;

static void *body(void *p) {
    long me = (long)p, found = 0;
    for (int i = 0; i < rounds; i++) {
        struct stat about;
        struct statfs where;
        char name[256];
        must(stat("/proc/self/exe", &about));
        found += about.st_size > 0;
        must(statfs("/", &where));
        found += where.f_bsize > 0;
        found += readlink("/proc/self/exe", name, sizeof name) > 0;
        found += access("/no/such/file", F_OK) != 0;
        ok(pthread_mutex_lock(&lock));
        sum = sum * 31 + me;
        ok(pthread_mutex_unlock(&lock));
    }
    expect(found == 4 * rounds);
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 3;
    rounds = argc > 2 ? atoi(argv[2]) : 300;
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < count; i++) finish(threads[i]);
    printf("%d threads, %d rounds: %ld\n", count, rounds, sum);
}
