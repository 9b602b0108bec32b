// Pid namespaces inside one another: in all of them processes have the same small numbers, beside each other and one in the other. Children
// live, end, are killed before they know themselves, lose their parents, and become other programs.
// run: 3
// run: 1 40
#include "guest.h"
#include <sys/wait.h>

static pid_t in_new_namespace(void) {
    return must(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0));
}

static void ended(pid_t pid, int wanted) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    if (status != wanted) say("process %d: status %#x\n", pid, status);
    expect(status == wanted);
}

// Children of one process, each the first one of a namespace.
static void beside_each_other(int count) {
    for (int i = 0; i < count; i++) {
        pid_t pid = in_new_namespace();
        if (pid == 0) {
            expect(getpid() == 1 && getppid() == 0);
            _exit(i % 100);
        }
        ended(pid, (i % 100) << 8);
    }
    // At the same time, and killed wherever they are.
    pid_t all[4];
    for (int i = 0; i < 4; i++) {
        all[i] = in_new_namespace();
        if (all[i] == 0)
            for (;;) pause();
    }
    for (int i = 0; i < 4; i++) must(kill(all[i], SIGKILL));
    for (int i = 0; i < 4; i++) ended(all[i], SIGKILL);
    pid_t pid = in_new_namespace();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(GUEST_FAILED);
    }
    ended(pid, 0);
}

// A process whose parent has ended is the namespace's first one's; its number is one of this namespace.
static void orphan(void) {
    pid_t pid = must(fork());
    if (pid == 0) {
        if (in_new_namespace() == 0) {
            expect(getpid() == 1);
            _exit(5);
        }
        _exit(6);
    }
    // In either order.
    int seen = 0, status;
    for (int i = 0; i < 2; i++) {
        must(wait(&status));
        seen += WEXITSTATUS(status);
    }
    expect(seen == 11);
}

static void *work(void *unused) {
    (void)unused;
    expect(getpid() == 1 && gettid_raw() != 1);
    burn(3000000);
    return NULL;
}

static int level(int depth, int count) {
    if (depth == 0) {
        beside_each_other(count);
        return 7;
    }
    must(unshare(CLONE_NEWPID));
    pid_t pid = must(fork());
    if (pid == 0) {
        expect(getpid() == 1);
        pthread_t a = start(work, NULL), b = start(work, NULL);
        finish(a);
        finish(b);
        orphan();
        _exit(level(depth - 1, count));
    }
    // Another one beside it, with the next number that is free: the first has children of its own by then, or not.
    pid_t second = must(fork());
    if (second == 0) {
        expect(getpid() > 1);
        _exit(8);
    }
    ended(second, 8 << 8);
    ended(pid, 7 << 8);
    return 7;
}

int main(int argc, char **argv) {
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) {
        say("no namespaces here\n");
        return 0;
    }
    pid_t pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
    if (pid == 0) _exit(0);
    if (pid < 0) {
        expect(errno == EPERM);
        say("no pid namespaces here\n");
        return 0;
    }
    ended(pid, 0);
    expect(level(number(argc, argv, 1, 3), number(argc, argv, 2, 4)) == 7);
    say("done\n");
}
