// Processes that are stopped and continued: by themselves, by their parent, while they sleep and while they compute.
#include "guest.h"
#include <sys/wait.h>

static volatile int continued;
static void on_cont(int signal) {
    (void)signal;
    continued++;
}

static void wait_for(pid_t pid, int options, bool (*is)(int)) {
    int status;
    expect(must(waitpid(pid, &status, options)) == pid && is(status));
}

static bool stopped(int status) {
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
}
static bool went_on(int status) {
    return WIFCONTINUED(status);
}
static bool ended(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == 3;
}
static bool killed(int status) {
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_cont};
    pid_t pid = must(fork());
    if (pid == 0) {
        must(sigaction(SIGCONT, &action, NULL));
        must(raise(SIGSTOP));
        expect(continued == 1);
        must(kill(getpid(), SIGSTOP));
        expect(continued == 2);
        _exit(3);
    }
    for (int i = 0; i < 2; i++) {
        wait_for(pid, WUNTRACED, stopped);
        must(kill(pid, SIGCONT));
    }
    wait_for(pid, 0, ended);
    say("stopped twice by itself\n");

    // Asleep in a call, then at work; meanwhile the parent goes on, and so does a brother.
    int ends[2], done[2];
    must(pipe(ends));
    must(pipe(done));
    for (int busy = 0; busy < 2; busy++) {
        pid = must(fork());
        if (pid == 0) {
            char c;
            if (busy) {
                expect(write(done[1], "x", 1) == 1);
                for (;;) burn(1000);
            }
            expect(read(ends[0], &c, 1) == 1);
            _exit(3);
        }
        char c;
        if (busy) expect(read(done[0], &c, 1) == 1);
        must(kill(pid, SIGSTOP));
        wait_for(pid, WUNTRACED, stopped);
        pid_t brother = must(fork());
        if (brother == 0) {
            for (int i = 0; i < 50; i++) getppid();
            burn(100000);
            _exit(3);
        }
        wait_for(brother, 0, ended);
        must(kill(pid, SIGCONT));
        wait_for(pid, WCONTINUED, went_on);
        if (busy) {
            must(kill(pid, SIGKILL));
            wait_for(pid, 0, killed);
        } else {
            expect(write(ends[1], "x", 1) == 1);
            wait_for(pid, 0, ended);
        }
    }
    // A whole group.
    pid = must(fork());
    if (pid == 0) {
        must(setpgid(0, 0));
        if (must(fork()) == 0) {
            expect(write(done[1], "x", 1) == 1);
            for (;;) pause();
        }
        expect(write(done[1], "x", 1) == 1);
        for (;;) burn(1000);
    }
    char c;
    for (int i = 0; i < 2; i++) expect(read(done[0], &c, 1) == 1);
    must(kill(-pid, SIGSTOP));
    wait_for(pid, WUNTRACED, stopped);
    must(kill(-pid, SIGKILL));
    wait_for(pid, 0, killed);
    say("done\n");
}
