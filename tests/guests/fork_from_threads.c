// Threads that fork at the same time; each waits for its own children, some of which are made by grandchildren and threads of theirs.
// run: 6 6
#include "guest.h"
#include <sys/wait.h>

static long rounds;
static __thread long own;

static void *in_child(void *p) {
    pid_t pid = must(fork());
    if (pid == 0) _exit(*(int *)p + 1);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
    *(int *)p = WEXITSTATUS(status);
    return NULL;
}

static void *body(void *p) {
    long me = (intptr_t)p;
    uint64_t ids = 0;
    for (long i = 0; i < rounds; i++) {
        own = me * 100 + i;
        pid_t pid = must(fork());
        if (pid == 0) {
            // The thread that forked is the only one of the child, with its own variables.
            expect(own == me * 100 + i && gettid_raw() == getpid());
            int value = (int)(me * 10 + i);
            if (i % 2) finish(start(in_child, &value));
            else in_child(&value);
            expect(value == me * 10 + i + 1);
            _exit(value);
        }
        int status;
        // Only our own children: those of the other threads are left to them.
        pid_t found = i % 3 ? waitpid(pid, &status, 0) : waitpid(-1, &status, __WNOTHREAD);
        expect(found == pid && WIFEXITED(status) && WEXITSTATUS(status) == me * 10 + i + 1);
        ids = mix(ids + pid);
    }
    fails(ECHILD, waitpid(-1, NULL, __WNOTHREAD));
    return (void *)ids;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 6);
    rounds = number(argc, argv, 2, 6);
    pthread_t all[16];
    for (intptr_t i = 0; i < threads; i++) all[i] = start(body, (void *)i);
    for (long i = 0; i < threads; i++) say("thread %ld: ids %lu\n", i, (unsigned long)finish(all[i]));
    fails(ECHILD, wait(NULL));
}
