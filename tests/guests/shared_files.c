// Files that several processes have mapped: at different addresses, before and after the fork; futexes in them.
#include "guest.h"
#include <linux/futex.h>
#include <sys/wait.h>

static long futex(int *word, int op, int value) {
    return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

int main(void) {
    int fd = must(memfd_create("shared", 0));
    must(ftruncate(fd, 3 * 4096));
    int *mine = must(mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    mine[1024] = 5;
    pid_t pid = must(fork());
    if (pid == 0) {
        // The second page alone, somewhere else.
        int *other = must(mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 4096));
        expect(other[0] == 5);
        other[1] = 6;
        __atomic_store_n(&other[2], 1, __ATOMIC_SEQ_CST);
        futex(&other[2], FUTEX_WAKE, 1);
        while (__atomic_load_n(&other[3], __ATOMIC_SEQ_CST) == 0) futex(&other[3], FUTEX_WAIT, 0);
        expect(other[4] == 7);
        _exit(0);
    }
    int *page = mine + 1024;
    while (__atomic_load_n(&page[2], __ATOMIC_SEQ_CST) == 0) futex(&page[2], FUTEX_WAIT, 0);
    expect(page[1] == 6);
    page[4] = 7;
    __atomic_store_n(&page[3], 1, __ATOMIC_SEQ_CST);
    futex(&page[3], FUTEX_WAKE, 1);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    say("through one file: %d %d %d\n", page[0], page[1], page[4]);

    // Two brothers map a file that their parent never had mapped.
    char name[] = "/tmp/reprise-shared-XXXXXX";
    int file = must(mkstemp(name));
    must(ftruncate(file, 4096));
    for (int i = 0; i < 2; i++) {
        if (must(fork()) != 0) continue;
        int *m = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        m[i] = i + 1;
        __atomic_fetch_add(&m[8], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&m[8], __ATOMIC_SEQ_CST) < 2) sched_yield();
        expect(m[0] == 1 && m[1] == 2);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    int *m = must(mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0));
    say("through another: %d %d %d\n", m[0], m[1], m[8]);
    must(unlink(name));
}
