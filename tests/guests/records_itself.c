// A program that has a middle part of its run recorded.
//   records_itself [ROUNDS]
// run: 300
#define REPRISE_PROGRAM getenv("REPRISE")
#include "guest.h"
#include "../../include/reprise.h"
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;
static volatile int over;

static void *body(void *which) {
    uint64_t own = (uintptr_t)which;
    while (!over) {
        for (int k = 0; k < 1000; k++) own = mix(own + k);
        ok(pthread_mutex_lock(&lock));
        sum = mix(sum + own);
        ok(pthread_mutex_unlock(&lock));
        usleep(200);
    }
    return NULL;
}

static void round_of(const char *part, long i) {
    ok(pthread_mutex_lock(&lock));
    say("%s %ld: %lu\n", part, i, sum);
    ok(pthread_mutex_unlock(&lock));
    usleep(1000);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 300);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < rounds / 10; i++) round_of("before", i);
    int started = getenv("REPRISE") ? reprise_start() : -1;
    reprise_begin("middle");
    for (long i = 0; i < rounds; i++) round_of(started == 0 ? "recorded" : "not recorded", i);
    reprise_end();
    if (started == 0) reprise_stop();
    for (long i = 0; i < rounds; i++) round_of("after", i);
    // Once in a process's life.
    if (started == 0) expect(reprise_start() == -1);
    over = 1;
    for (long i = 0; i < 2; i++) finish(threads[i]);
    // No child of the header's is left, and it was told of none.
    expect(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
    say("end\n");
}
