// Every form of waiting for a child: by id, group, descriptor, for any; ends, stops and continuations; without taking it away.
#include "guest.h"
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

static siginfo_t info;

static pid_t child(int status) {
    pid_t pid = must(fork());
    if (pid == 0) _exit(status);
    return pid;
}

// A child that stops itself, and ends with a status when it is continued.
static pid_t stopping(int status) {
    pid_t pid = must(fork());
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(status);
    }
    return pid;
}

static void saw(const char *how, int code, int status) {
    expect(info.si_signo == SIGCHLD && info.si_code == code && info.si_status == status && info.si_uid == getuid());
    say("%s: code %d, status %d\n", how, code, status);
    memset(&info, 0, sizeof info);
}

int main(void) {
    int status;
    // Nothing is there.
    fails(ECHILD, waitid(P_ALL, 0, &info, WEXITED));
    fails(EINVAL, waitid(P_ALL, 0, &info, 0));
    fails(EINVAL, waitid((idtype_t)77, 0, &info, WEXITED));
    fails(EINVAL, waitid(P_PID, 0, &info, WEXITED));
    fails(EINVAL, waitid(P_ALL, 0, &info, WEXITED | 0x10000));
    fails(EBADF, waitid(P_PIDFD, 77, &info, WEXITED));
    fails(EBADF, waitid(P_PIDFD, must(dup(1)), &info, WEXITED));
    fails(EINVAL, waitpid(-1, &status, 0x10000));
    fails(ESRCH, waitpid(INT_MIN, &status, 0));

    // By id, left where it is; then by group, by descriptor, any.
    pid_t pid = child(1);
    for (int i = 0; i < 3; i++) {
        must(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
        expect(info.si_pid == pid);
    }
    saw("left alone", CLD_EXITED, 1);
    must(waitid(P_PGID, getpgrp(), &info, WEXITED));
    saw("by group", CLD_EXITED, 1);
    pid = child(2);
    int fd = must(pidfd_open(pid, 0));
    must(waitid(P_PIDFD, fd, &info, WEXITED));
    expect(info.si_pid == pid);
    saw("by descriptor", CLD_EXITED, 2);
    fails(ECHILD, waitid(P_PIDFD, fd, &info, WEXITED));
    pid = child(3);
    must(waitid(P_PGID, 0, &info, WEXITED));
    saw("by our own group", CLD_EXITED, 3);
    pid = child(4);
    struct rusage usage = {.ru_nvcsw = -1};
    must(syscall(SYS_waitid, P_ALL, 0, &info, WEXITED, &usage));
    expect(info.si_pid == pid && usage.ru_nvcsw >= 0);
    saw("any, with its usage", CLD_EXITED, 4);
    pid = child(5);
    must(syscall(SYS_waitid, P_ALL, 0, NULL, WEXITED, NULL));
    fails(ECHILD, waitpid(pid, NULL, 0));

    // Without waiting, while it still runs.
    int ends[2];
    must(pipe(ends));
    pid = must(fork());
    if (pid == 0) {
        char c;
        expect(read(ends[0], &c, 1) == 1);
        _exit(c);
    }
    info.si_pid = info.si_signo = 77;
    must(waitid(P_PID, pid, &info, WEXITED | WNOHANG));
    expect(info.si_pid == 0 && info.si_signo == 0);
    expect(waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
    fd = must((int)syscall(SYS_pidfd_open, pid, O_NONBLOCK));
    fails(EAGAIN, waitid(P_PIDFD, fd, &info, WEXITED));
    expect(write(ends[1], "\6", 1) == 1);
    expect(must(wait4(pid, &status, __WALL, &usage)) == pid && WEXITSTATUS(status) == 6);
    fails(ECHILD, waitpid(-1, NULL, 0));

    // Stopped and continued: each is told once, or as often as one asks for it with WNOWAIT.
    pid = stopping(7);
    must(waitid(P_PID, pid, &info, WSTOPPED | WNOWAIT));
    saw("stopped", CLD_STOPPED, SIGSTOP);
    must(waitid(P_ALL, 0, &info, WSTOPPED | WEXITED));
    saw("stopped, taken", CLD_STOPPED, SIGSTOP);
    must(waitid(P_PID, pid, &info, WSTOPPED | WNOHANG));
    expect(info.si_pid == 0);
    must(kill(pid, SIGCONT));
    // It may be over before anybody looks: then only its end is left.
    must(waitid(P_PID, pid, &info, WCONTINUED | WEXITED | WNOWAIT));
    expect(info.si_code == CLD_CONTINUED || info.si_code == CLD_EXITED);
    must(waitid(P_PID, pid, &info, WEXITED));
    saw("ended", CLD_EXITED, 7);

    // A child whose end raises no SIGCHLD is a "clone" child, which only __WCLONE and __WALL see.
    pid = must((pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL));
    if (pid == 0) _exit(8);
    fails(ECHILD, waitpid(pid, &status, 0));
    expect(must(waitpid(pid, &status, __WCLONE)) == pid && WEXITSTATUS(status) == 8);
    // Before the child can end.
    signal(SIGUSR2, SIG_IGN);
    pid = must((pid_t)syscall(SYS_clone, SIGUSR2, NULL, NULL, NULL, NULL));
    if (pid == 0) _exit(9);
    expect(must(waitpid(pid, &status, __WALL)) == pid && WEXITSTATUS(status) == 9);
    say("clone children: seen by __WCLONE and __WALL\n");
    // Killed, and a status that has no room.
    pid = must(fork());
    if (pid == 0) for (;;) pause();
    must(kill(pid, SIGKILL));
    must(waitid(P_PID, pid, &info, WEXITED));
    saw("killed", CLD_KILLED, SIGKILL);
    pid = child(0x1234);
    must(waitid(P_PID, pid, &info, WEXITED));
    saw("a byte of its status", CLD_EXITED, 0x34);
    fails(EFAULT, waitpid(child(0), (int *)8, 0));
}
