// vfork children whose execs fail, one after the other until one succeeds, as a shell's search does; from several threads at once.
// run: 4 5
#include "guest.h"
#include <sys/wait.h>

static long rounds;
static char *program;
static __thread volatile int tries;

// Never inlined: the child changes what this frame holds.
__attribute__((noinline)) static pid_t attempt(const char *last) {
    pid_t pid = vfork();
    if (pid == 0) {
        const char *paths[] = {"/nowhere/at/all", "/etc/passwd", "/etc/passwd/x", "/tmp", last};
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
            tries++;
            execl(paths[i], program, "spawned", NULL);
        }
        _exit(errno == ENOENT ? 70 : 71);
    }
    return pid;
}

static void *body(void *p) {
    for (long i = 0; i < rounds; i++) {
        int status;
        tries = 0;
        pid_t pid = must(attempt(i % 2 ? "/proc/self/exe" : "/nowhere"));
        // The child's work is seen in our memory.
        expect(tries == 5);
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
        expect(WEXITSTATUS(status) == (i % 2 ? 72 : 70));
    }
    return p;
}

// What other threads of its memory do is seen by the order of counting, so that how often it works can be recorded.
static tally stop;
static void *works(void *counter) {
    while (!counted(&stop)) {
        ++*(volatile long *)counter;
        getppid();
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "spawned")) return 72;
    long threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 5);
    program = argv[0];
    body(NULL);
    say("alone: done\n");
    static long counter;
    pthread_t busy = start(works, &counter), all[16];
    for (long i = 0; i < threads; i++) all[i] = start(body, NULL);
    for (long i = 0; i < threads; i++) finish(all[i]);
    count_up(&stop);
    finish(busy);
    // A vfork child that is killed lets its parent go on.
    pid_t pid = vfork();
    if (pid == 0) {
        kill(getpid(), SIGKILL);
        _exit(0);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    fails(ECHILD, wait(NULL));
    say("together: done, counted to %ld\n", counter);
}
