// clone(2) with CLONE_PIDFD: a descriptor of the child, told where a thread id would be.
#include "guest.h"
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

static long make(unsigned long flags, int *fd) {
    return syscall(SYS_clone, flags | SIGCHLD, NULL, fd, NULL, 0);
}

static int ends(void *unused) {
    (void)unused;
    _exit(7);
}

static int becomes_true(void *unused) {
    (void)unused;
    execl("/bin/true", "true", NULL);
    _exit(99);
}

static char *mapped(size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(p != MAP_FAILED);
    return p;
}

int main(void) {
    int fd = -1;
    pid_t pid = must(make(CLONE_PIDFD, &fd));
    if (pid == 0) {
        // The child has neither the number nor the descriptor.
        expect(fd == -1 && fcntl(3, F_GETFD) < 0);
        _exit(5);
    }
    expect(fd == 3 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    expect(must(poll(&p, 1, -1)) == 1 && p.revents & POLLIN);
    siginfo_t info = {0};
    must(waitid((idtype_t)3 /* P_PIDFD */, fd, &info, WEXITED));
    expect(info.si_pid == pid && info.si_code == CLD_EXITED && info.si_status == 5);
    must(close(fd));
    say("child by descriptor: status %d\n", info.si_status);

    // By the descriptor it can be killed.
    pid = must(make(CLONE_PIDFD, &fd));
    if (pid == 0)
        for (;;) pause();
    must(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    must(close(fd));
    say("killed by descriptor\n");

    // The parent waits until its child has ended, or is another program: the descriptor is the kernel's own.
    volatile int shared = -1;
    for (int execs = 0; execs < 2; execs++) {
        char *stack = mapped(65536);
        pid = must(clone(execs ? becomes_true : ends, stack + 65536, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, NULL, (int *)&shared));
        expect(shared == 3 && fcntl(shared, F_GETFD) == FD_CLOEXEC);
        must(waitid((idtype_t)3 /* P_PIDFD */, shared, &info, WEXITED));
        expect(info.si_pid == pid && info.si_status == (execs ? 0 : 7));
        must(close(shared));
        must(munmap(stack, 65536));
    }
    // Nobody has to wait for children that are ignored: it may be gone when its parent goes on, and its descriptor is there.
    signal(SIGCHLD, SIG_IGN);
    char *stack = mapped(65536);
    must(clone(ends, stack + 65536, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, NULL, (int *)&shared));
    p = (struct pollfd){.fd = shared, .events = POLLIN};
    expect(must(poll(&p, 1, -1)) == 1 && p.revents & POLLIN);
    signal(SIGCHLD, SIG_DFL);
    must(close(shared));
    say("waited for by descriptor\n");

    // No room, a bad place, flags that exclude each other: no child is made.
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 3;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    fails(EMFILE, make(CLONE_PIDFD, &fd));
    limit.rlim_cur = before;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    fails(EFAULT, make(CLONE_PIDFD, (int *)8));
    fails(EINVAL, make(CLONE_PIDFD | CLONE_PARENT_SETTID, &fd));
    fails(ECHILD, wait(NULL));
    say("done\n");
}
