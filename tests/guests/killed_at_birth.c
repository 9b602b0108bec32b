// Children that are killed at every moment of their first steps, most of them the first ones of pid namespaces: these call themselves 1, and their parents know them by other
// numbers. Those that begin later have to be found by what they are among those that began, killed ones not counted.
// run: 60
#include "guest.h"
#include <sys/wait.h>

static void killed_after(uint64_t flags, int steps) {
    pid_t pid = must(syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0));
    if (pid == 0)
        for (;;) pause();
    burn(steps);
    must(kill(pid, SIGKILL));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(status == SIGKILL);
}

// One that says who it is once it has begun, and is killed then: the trace finds it dead.
static void killed_later(void) {
    int ends[2];
    must(pipe(ends));
    pid_t pid = must(fork());
    if (pid == 0) {
        must(write(ends[1], "x", 1));
        for (;;) pause();
    }
    char c;
    expect(must(read(ends[0], &c, 1)) == 1);
    must(kill(pid, SIGKILL));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(status == SIGKILL);
    must(close(ends[0]));
    must(close(ends[1]));
}

int main(int argc, char **argv) {
    int count = number(argc, argv, 1, 60);
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) {
        say("no namespaces here\n");
        return 0;
    }
    for (int i = 0; i < count; i++) {
        killed_after(i % 4 == 3 ? 0 : CLONE_NEWPID, i % 20 * 10000);
        if (i % 8 == 7) killed_later();
    }
    say("done\n");
}
