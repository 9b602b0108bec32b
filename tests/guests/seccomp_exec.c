// A filter goes with its process through fork and exec.
#include "filters.h"
#include <sys/wait.h>

static void check(const char *where) {
    for (int i = 0; i < 10; i++) fails(70, syscall(SYS_getppid));
    expect(prctl(PR_GET_SECCOMP) == 2);
    say("%s: still there\n", where);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        check(argv[1]);
        // On top of the inherited one.
        FILTER(another, NUMBER, ON(SYS_getuid, SECCOMP_RET_ERRNO | 71), RETURN(SECCOMP_RET_ALLOW));
        must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &another));
        check(argv[1]);
        fails(71, syscall(SYS_getuid));
        return 5;
    }
    no_new_privileges();
    // Also of what it takes to bring a program in: some calls are refused.
    FILTER(filter, NUMBER, ON(SYS_getppid, SECCOMP_RET_ERRNO | 70), ON(SYS_munmap, SECCOMP_RET_ERRNO | EPERM),
           RETURN(SECCOMP_RET_ALLOW));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    pid_t child = must(fork());
    if (child == 0) {
        check("child");
        execl("/proc/self/exe", "again", "child's program", NULL);
        _exit(1);
    }
    int status;
    must(waitpid(child, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    must(syscall(SYS_getuid));
    // One that ends by its filter.
    child = must(fork());
    if (child == 0) {
        FILTER(deadly, NUMBER, ON(SYS_getuid, SECCOMP_RET_KILL_PROCESS), RETURN(SECCOMP_RET_ALLOW));
        must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &deadly));
        syscall(SYS_getuid);
        _exit(1);
    }
    must(waitpid(child, &status, 0));
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    check("parent");
}
