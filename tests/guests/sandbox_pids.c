// A pid namespace: its first process is 1, others are told of others by their numbers there, execs and threads work inside,
// and all of them end with the first one.
#include "guest.h"
#include <sys/wait.h>

static pid_t in_thread;
static void *look(void *unused) {
    (void)unused;
    in_thread = getpid();
    expect(gettid_raw() != in_thread);
    // Long enough for others to want their turn.
    burn(30000000);
    return NULL;
}

static void inside(const char *self) {
    expect(getpid() == 1 && getppid() == 0);
    // Children, killed and not.
    for (int i = 0; i < 3; i++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            expect(getppid() == 1);
            if (i == 1)
                for (;;) pause();
            if (i == 2) must(execl(self, "sandbox_pids", "inside", NULL));
            _exit(i);
        }
        if (i == 1) must(kill(pid, SIGKILL));
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        say("inside: child %d: status %d\n", pid, status);
    }
    // Threads that compute at the same time as a child does: slices are cut.
    pid_t pid = must(fork());
    if (pid == 0) {
        burn(30000000);
        _exit(9);
    }
    pthread_t a = start(look, NULL), b = start(look, NULL);
    finish(a);
    finish(b);
    expect(in_thread == 1);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 9);
    // A grandchild whose parent ends becomes the first one's.
    int ends[2];
    must(pipe(ends));
    pid = must(fork());
    if (pid == 0) {
        if (must(fork()) == 0) {
            char c;
            must(close(ends[1]));
            expect(read(ends[0], &c, 1) == 0);
            _exit(11);
        }
        _exit(10);
    }
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 10);
    must(close(ends[1]));
    pid = must(wait(&status));
    expect(WEXITSTATUS(status) == 11);
    say("inside: orphan %d\n", pid);
    // One is left behind, and dies with the namespace.
    if (must(fork()) == 0)
        for (;;) pause();
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        expect(strcmp(argv[1], "inside") == 0);
        say("became %d, parent %d\n", getpid(), getppid());
        return 3;
    }
    // Without privileges a user namespace gives them.
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) {
        say("no namespaces here\n");
        return 0;
    }
    // Two namespaces, one after the other: the same numbers again. The second is made for all later children.
    for (int i = 0; i < 2; i++) {
        pid_t pid;
        if (i == 0) {
            pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
        } else {
            must(unshare(CLONE_NEWPID));
            pid = fork();
        }
        if (pid == 0) inside("/proc/self/exe");
        if (pid < 0) {
            expect(errno == EPERM);
            say("no pid namespaces here\n");
            return 0;
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && status == 0);
        say("outside: %d is over\n", pid);
    }
    say("done\n");
}
