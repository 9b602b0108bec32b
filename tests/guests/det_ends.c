// How a program ends whose second thread is killed, or is all that is left: like one process.
// run: fault => SIGSEGV
// run: abort => SIGABRT
// run: outside => SIGTERM
// run: last => SIGTERM
#include "guest.h"

static const char *how;

static void *body(void *unused) {
    if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
    if (!strcmp(how, "abort")) abort();
    pid_t parent = getpid();
    if (must(fork()) == 0) {
        must(kill(parent, SIGTERM));
        _exit(0);
    }
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    expect(argc == 2);
    how = argv[1];
    pthread_t thread = start(body, NULL);
    sigset_t all;
    sigfillset(&all);
    if (!strcmp(how, "outside")) ok(pthread_sigmask(SIG_BLOCK, &all, NULL));
    if (!strcmp(how, "last")) pthread_exit(NULL);
    finish(thread);
    say("the end\n");
}
