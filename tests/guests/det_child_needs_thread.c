// A child that ends only when another thread than the one that waits for it has done something: others may not wait for its end for ever.
#include "guest.h"
#include <sys/wait.h>

static int ends[2];
static tally made;

static void *waits(void *unused) {
    pid_t pid = must(fork());
    if (pid == 0) {
        char c;
        must(close(ends[1]));
        while (must(read(ends[0], &c, 1)) == 1) continue;
        _exit(3);
    }
    count_up(&made);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    say("the child has ended\n");
    return unused;
}

int main(void) {
    must(pipe(ends));
    pthread_t thread = start(waits, NULL);
    for (int i = 0; i < 100; i++) {
        sched_yield();
        expect(write(ends[1], "x", 1) == 1);
    }
    // It has a copy of what is open now.
    while (!counted(&made)) sched_yield();
    must(close(ends[1]));
    finish(thread);
}
