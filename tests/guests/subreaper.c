// Orphans come to the nearest ancestor that takes them (PR_SET_CHILD_SUBREAPER), which then reaps them like its own children.
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static int ends[2];

// A child with a grandchild; the child ends at once, the grandchild when it has seen its new parent.
static pid_t orphan(pid_t reaper, int status) {
    pid_t pid = must(fork());
    if (pid == 0) {
        pid_t me = getpid();
        pid_t grandchild = must(fork());
        if (grandchild == 0) {
            while (getppid() == me) sched_yield();
            expect(getppid() == reaper);
            _exit(status);
        }
        expect(write(ends[1], &grandchild, sizeof grandchild) == sizeof grandchild);
        _exit(1);
    }
    int result;
    expect(must(waitpid(pid, &result, 0)) == pid && WEXITSTATUS(result) == 1);
    pid_t grandchild;
    expect(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    return grandchild;
}

static void reap(pid_t pid, int wanted) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

int main(void) {
    must(pipe(ends));
    int is = -1;
    must(prctl(PR_GET_CHILD_SUBREAPER, &is));
    expect(is == 0);
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    must(prctl(PR_GET_CHILD_SUBREAPER, &is));
    expect(is == 1);
    pid_t me = getpid();
    for (int i = 0; i < 3; i++) reap(orphan(me, 40 + i), 40 + i);
    fails(ECHILD, wait(NULL));
    say("three orphans reaped\n");

    // The nearest one counts, and the attribute is not inherited.
    pid_t pid = must(fork());
    if (pid == 0) {
        must(prctl(PR_GET_CHILD_SUBREAPER, &is));
        expect(is == 0);
        pid_t passed = orphan(me, 50);
        fails(ECHILD, waitpid(passed, NULL, 0));
        must(prctl(PR_SET_CHILD_SUBREAPER, 1));
        reap(orphan(getpid(), 51), 51);
        _exit(0);
    }
    int seen = 0, status;
    for (int i = 0; i < 2; i++) {
        pid_t ended = must(wait(&status));
        expect(WIFEXITED(status));
        seen |= ended == pid ? 1 : 2;
        expect(WEXITSTATUS(status) == (ended == pid ? 0 : 50));
    }
    expect(seen == 3);
    say("the nearest one takes them\n");

    // A chain: each ends when its child has begun; the last of them comes to us, and all zombies between them.
    enum { CHAIN = 6 };
    pid = must(fork());
    if (pid == 0) {
        for (int i = 0; i < CHAIN; i++)
            if (must(fork()) != 0) _exit(10 + i);
        _exit(10 + CHAIN);
    }
    int sum = 0;
    for (int i = 0; i <= CHAIN; i++) {
        must(wait(&status));
        expect(WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    expect(sum == 10 * (CHAIN + 1) + CHAIN * (CHAIN + 1) / 2);
    fails(ECHILD, wait(NULL));
    say("a chain of %d reaped\n", CHAIN + 1);
}
