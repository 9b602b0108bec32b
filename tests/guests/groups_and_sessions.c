// Process groups and sessions: who may change them, and when it is too late.
#include "guest.h"
#include <sys/wait.h>

static int to_child[2], to_parent[2];

static void tell_other(int fd) { expect(write(fd, "x", 1) == 1); }
static void hear(int fd) {
    char c;
    expect(read(fd, &c, 1) == 1);
}

static void reap(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        // After the exec: the parent may no longer move us, we may.
        tell_other(to_parent[1] = atoi(argv[1]));
        hear(to_child[0] = atoi(argv[2]));
        must(setpgid(0, 0));
        expect(getpgrp() == getpid());
        return 0;
    }
    must(pipe(to_child));
    must(pipe(to_parent));
    fails(EINVAL, setpgid(0, -1));
    fails(ESRCH, setpgid(0x3fffffff, 0));
    fails(ESRCH, getpgid(0x3fffffff));
    fails(ESRCH, getsid(0x3fffffff));
    expect(getpgid(0) == getpgrp() && getsid(0) == getsid(getpid()));
    pid_t outside = getpgrp(), session = getsid(0);

    // A new session: a leader of a group can't have one.
    pid_t pid = must(fork());
    if (pid == 0) {
        must(setpgid(0, 0));
        fails(EPERM, setsid());
        must(setpgid(0, 0));
        pid_t again = must(fork());
        if (again == 0) {
            expect(getpgrp() == getppid() && getsid(0) == session);
            expect(must(setsid()) == getpid() && getpgrp() == getpid() && getsid(0) == getpid());
            // A leader of a session can't move at all, and groups of other sessions can't be joined.
            fails(EPERM, setpgid(0, 0));
            fails(EPERM, setpgid(0, outside));
            pid_t inner = must(fork());
            if (inner == 0) {
                fails(EPERM, setpgid(0, outside));
                fails(ESRCH, setpgid(getppid(), 0));
                must(setpgid(0, 0));
                must(setpgid(0, getppid()));
                expect(getpgrp() == getppid());
                _exit(0);
            }
            reap(inner);
            _exit(0);
        }
        reap(again);
        _exit(0);
    }
    reap(pid);
    say("sessions: done\n");

    // Another's group: a child's before its exec, an empty one never.
    pid = must(fork());
    if (pid == 0) {
        hear(to_child[0]);
        expect(getpgrp() == getpid());
        _exit(0);
    }
    fails(EPERM, setpgid(pid, 0x3fffffff));
    must(setpgid(pid, pid));
    expect(getpgid(pid) == pid && getsid(pid) == session);
    pid_t second = must(fork());
    if (second == 0) {
        must(setpgid(0, pid));
        expect(getpgrp() == pid);
        _exit(0);
    }
    must(setpgid(second, pid));
    reap(second);
    must(setpgid(pid, outside));
    must(setpgid(pid, pid));
    tell_other(to_child[1]);
    reap(pid);
    fails(ESRCH, setpgid(pid, pid));
    say("groups: done\n");

    // After an exec, its group is the child's own business.
    pid = must(fork());
    if (pid == 0) {
        char a[12], b[12];
        snprintf(a, sizeof a, "%d", to_parent[1]);
        snprintf(b, sizeof b, "%d", to_child[0]);
        execl("/proc/self/exe", argv[0], a, b, NULL);
        _exit(GUEST_FAILED);
    }
    hear(to_parent[0]);
    fails(EACCES, setpgid(pid, pid));
    tell_other(to_child[1]);
    reap(pid);
    // A child in another session.
    pid = must(fork());
    if (pid == 0) {
        must(setsid());
        tell_other(to_parent[1]);
        hear(to_child[0]);
        _exit(0);
    }
    hear(to_parent[0]);
    fails(EPERM, setpgid(pid, pid));
    expect(getsid(pid) == pid);
    tell_other(to_child[1]);
    reap(pid);
    say("too late: done\n");
}
