// A group whose last link to its session ends while a member is stopped: the kernel sends SIGHUP and SIGCONT. In an orphaned group
// the stops of a terminal do nothing.
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static volatile sig_atomic_t hung_up, continued;
static void handler(int number) {
    if (number == SIGHUP) hung_up++;
    if (number == SIGCONT) continued++;
}

int main(void) {
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    struct sigaction action = {.sa_handler = handler};
    int ends[2];
    must(pipe(ends));
    // We are in another session than the child, so only the child links the grandchild's group to its session.
    pid_t child = must(fork());
    if (child == 0) {
        must(setsid());
        pid_t grandchild = must(fork());
        if (grandchild == 0) {
            must(setpgid(0, 0));
            must(sigaction(SIGHUP, &action, NULL));
            must(sigaction(SIGCONT, &action, NULL));
            pid_t parent = getppid();
            raise(SIGSTOP);
            // Both were sent, SIGCONT made it run, and both are handled before the next line.
            expect(hung_up == 1 && continued == 1);
            while (getppid() == parent) sched_yield();
            // Now the group is an orphan: stops by a terminal's signals are ignored.
            raise(SIGTSTP);
            raise(SIGTTIN);
            raise(SIGTTOU);
            say("not stopped; hung up %d, continued %d\n", (int)hung_up, (int)continued);
            _exit(8);
        }
        int status;
        expect(must(waitpid(grandchild, &status, WUNTRACED)) == grandchild && WIFSTOPPED(status));
        expect(write(ends[1], &grandchild, sizeof grandchild) == sizeof grandchild);
        _exit(7);
    }
    pid_t grandchild;
    expect(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    int status;
    expect(must(waitpid(child, &status, 0)) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect(must(waitpid(grandchild, &status, 0)) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == 8);
    say("both reaped\n");

    // Without handlers, SIGHUP ends it.
    child = must(fork());
    if (child == 0) {
        must(setsid());
        pid_t second = must(fork());
        if (second == 0) {
            must(setpgid(0, 0));
            raise(SIGSTOP);
            _exit(9);
        }
        expect(must(waitpid(second, &status, WUNTRACED)) == second && WIFSTOPPED(status));
        expect(write(ends[1], &second, sizeof second) == sizeof second);
        _exit(0);
    }
    expect(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    expect(must(waitpid(child, &status, 0)) == child && WIFEXITED(status));
    expect(must(waitpid(grandchild, &status, 0)) == grandchild && WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
    say("ended by SIGHUP\n");
}
