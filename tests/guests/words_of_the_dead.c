// A process that shares its parent's memory (CLONE_VM, no thread) and ends in any way: the kernel clears its word (CLONE_CHILD_CLEARTID), and wakes
// who waits for it. (Not under every engine in every way: the arguments are rounds, the first way and the last one.)
// run: 4 1 1
#include "guest.h"
#include <linux/futex.h>
#include <sys/wait.h>

enum { BY_ITSELF, BY_EXIT, BY_EXIT_GROUP, BY_EXEC, KILLED, WAYS };
static int way;
static pid_t word;
static int ends[2];

static int child(void *unused) {
    (void)unused;
    char c;
    switch (way) {
    case BY_ITSELF: kill(getpid(), SIGKILL); break;
    case BY_EXIT: syscall(SYS_exit, 3); break;
    case BY_EXIT_GROUP: syscall(SYS_exit_group, 3); break;
    case BY_EXEC: execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL); break;
    case KILLED:
        for (;;) (void)!read(ends[0], &c, 1);
    }
    return GUEST_FAILED;
}

static void *killer(void *pid) {
    must(kill((pid_t)(long)pid, SIGKILL));
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 4);
    must(pipe(ends));
    char *stack = must(mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    long last = number(argc, argv, 3, WAYS - 1);
    for (way = number(argc, argv, 2, 0); way <= last; way++) {
        for (long i = 0; i < rounds; i++) {
            int status;
            int flags = CLONE_VM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
            pid_t pid = must(clone(child, stack + (1 << 16), flags, NULL, &word, NULL, &word));
            pthread_t thread = 0;
            if (way == KILLED) thread = start(killer, (void *)(long)pid);
            // A plain load has no recorded order under every engine.
            while (__atomic_fetch_add(&word, 0, __ATOMIC_SEQ_CST) != 0) syscall(SYS_futex, &word, FUTEX_WAIT, pid, NULL, NULL, 0);
            if (way == KILLED) finish(thread);
            expect(must(waitpid(pid, &status, 0)) == pid);
            expect(status == (way == BY_ITSELF || way == KILLED ? SIGKILL : 3 << 8));
        }
        say("way %d\n", way);
    }
}
