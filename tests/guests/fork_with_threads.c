// Forking while other threads run; a child that starts threads; processes that end with threads in every state.
// run: 6
#include "guest.h"
#include <sys/wait.h>

static int quiet[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static tally stop;

static void *reads(void *unused) {
    (void)unused;
    char c;
    expect(read(quiet[0], &c, 1) == 0 || 1);
    return NULL;
}

static void *waits(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&mutex));
    ok(pthread_mutex_unlock(&mutex));
    return NULL;
}

static void *works(void *counter) {
    while (!counted(&stop)) {
        (*(volatile long *)counter)++;
        getppid();
    }
    return NULL;
}

static void *adds(void *counter) {
    for (int i = 0; i < 100; i++) __atomic_fetch_add((long *)counter, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    long children = number(argc, argv, 1, 6);
    must(pipe(quiet));
    static long counter;
    pthread_t worker = start(works, &counter);
    for (long i = 0; i < children; i++) {
        pid_t pid = must(i % 2 ? (pid_t)syscall(SYS_fork) : fork());
        if (pid == 0) {
            if (i % 2) _exit(7);
            long sum = 0;
            pthread_t threads[3];
            for (int k = 0; k < 3; k++) threads[k] = start(adds, &sum);
            for (int k = 0; k < 3; k++) finish(threads[k]);
            expect(sum == 300);
            // The process ends with threads asleep in a call, on a futex, and at work.
            ok(pthread_mutex_lock(&mutex));
            start(reads, NULL);
            start(waits, NULL);
            start(works, &counter);
            usleep(1000 * (i % 3));
            if (i % 4 == 0) _exit(7);
            exit(7);
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        say("child %ld is done\n", i);
    }
    count_up(&stop);
    finish(worker);
    say("counted to %ld\n", counter);
}
