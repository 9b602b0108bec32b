// fork(2) and what a parent learns of its children: ids, statuses, every form of wait.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static pid_t child(int status) {
    pid_t pid = must(fork());
    if (pid == 0) _exit(status);
    return pid;
}

int main(void) {
    pid_t me = getpid();
    fails(ECHILD, wait(NULL));
    fails(ECHILD, waitpid(1, NULL, WNOHANG));

    // Ids, seen from both sides.
    int pipe_of[2];
    must(pipe(pipe_of));
    pid_t pid = must(fork());
    if (pid == 0) {
        expect(getppid() == me && gettid_raw() == getpid());
        pid_t mine = getpid();
        expect(write(pipe_of[1], &mine, sizeof mine) == sizeof mine);
        _exit(3);
    }
    pid_t told;
    expect(read(pipe_of[0], &told, sizeof told) == sizeof told && told == pid);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    say("child %d of %d told its id and exited with 3\n", pid, me);
    fails(ECHILD, waitpid(pid, &status, 0));

    // Many at once; their order of ending may differ.
    enum { MANY = 12 };
    for (int i = 0; i < MANY; i++) child(i);
    int seen = 0;
    for (int i = 0; i < MANY; i++) {
        struct rusage usage;
        pid = must(wait4(-1, &status, 0, &usage));
        expect(WIFEXITED(status));
        seen |= 1 << WEXITSTATUS(status);
        say("reaped %d: %d\n", pid, WEXITSTATUS(status));
    }
    expect(seen == (1 << MANY) - 1);

    // A zombie stays until it is reaped.
    pid = child(9);
    siginfo_t info;
    must(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    expect(info.si_pid == pid && info.si_status == 9 && info.si_code == CLD_EXITED);
    must(kill(pid, 0));
    must(waitid(P_PID, pid, &info, WEXITED));
    fails(ESRCH, kill(pid, 0));

    // Without waiting.
    must(pipe(pipe_of));
    pid = must(fork());
    if (pid == 0) {
        char c;
        _exit(read(pipe_of[0], &c, 1) == 1 ? c : 99);
    }
    expect(waitpid(pid, &status, WNOHANG) == 0);
    expect(write(pipe_of[1], "\5", 1) == 1);
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 5);

    // By group.
    pid = must(fork());
    if (pid == 0) {
        must(setpgid(0, 0));
        expect(getpgrp() == getpid());
        _exit(4);
    }
    setpgid(pid, pid);
    expect(must(waitpid(-pid, &status, 0)) == pid && WEXITSTATUS(status) == 4);
    say("done\n");
}
