// Run under docker_filter: what the filter refuses is refused, and what it allows works.
#include "guest.h"
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int child(void *unused) {
    (void)unused;
    return 0;
}

int main(void) {
    fails(EPERM, personality(ADDR_NO_RANDOMIZE));
    must(personality(0xffffffff));
    must(personality(0));
    fails(EPERM, syscall(SYS_userfaultfd, 0));
    fails(EPERM, syscall(SYS_unshare, 0x20000));
    fails(EPERM, syscall(SYS_keyctl, 0));
    fails(EPERM, syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
    fails(EPERM, syscall(SYS_io_uring_setup, 1, NULL));
    fails(EPERM, syscall(SYS_mount, "a", "b", "c", 0, NULL));
    fails(ENOSYS, syscall(SYS_clone3, NULL, 0));
    fails(EPERM, socket(40, SOCK_STREAM, 0));
    close(must(socket(AF_UNIX, SOCK_STREAM, 0)));
    static char stack[65536];
    fails(EPERM, clone(child, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL));
    pid_t pid = must(clone(child, stack + sizeof stack, SIGCHLD, NULL));
    int status;
    must(waitpid(pid, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pid = must(fork());
    if (pid == 0) {
        must(ptrace(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        _exit(3);
    }
    must(waitpid(pid, &status, 0));
    expect(WIFSTOPPED(status));
    must(ptrace(PTRACE_CONT, pid, 0, 0));
    must(waitpid(pid, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    say("as in Docker\n");
    return 0;
}
