// The main thread ends before the others; the process lives on, and the last thread gives its status.
// run: => 0
// run: exit => 9
#include "guest.h"

static pthread_t main_thread;

static void *body(void *p) {
    finish(main_thread);
    say("main thread is gone, pid %d, tid %ld\n", getpid(), gettid_raw());
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/stat", getpid());
    expect(access(name, F_OK) == 0);
    if (p) exit(9);
    return NULL;
}

int main(int argc, char **argv) {
    main_thread = pthread_self();
    start(body, argc > 1 ? argv : NULL);
    pthread_exit(NULL);
}
