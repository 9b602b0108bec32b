// The ways in which a seccomp filter ends a program or one of its threads.
// run: process => SIGSYS
// run: only_thread => SIGSYS
// run: one_of_two
// run: no_handler => SIGSYS
// run: blocked => SIGSYS
// run: ignored => SIGSYS
// run: strict => SIGKILL
// run: strict_obeyed => 7
// run: strict_one_of_two
#include "filters.h"

static const char *how;

static void handler(int number) {
    say("not reached %d\n", number);
}

static void forbid(unsigned action) {
    no_new_privileges();
    FILTER(filter, NUMBER, ON(SYS_getppid, action), RETURN(SECCOMP_RET_ALLOW));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

static void *other(void *argument) {
    if (strcmp(how, "strict_one_of_two") == 0)
        must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    else
        forbid(SECCOMP_RET_KILL_THREAD);
    say("about to be ended\n");
    syscall(SYS_getppid);
    say("not reached\n");
    return argument;
}

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "process";
    say("%s\n", how);
    if (strcmp(how, "process") == 0) forbid(SECCOMP_RET_KILL_PROCESS);
    if (strcmp(how, "only_thread") == 0) forbid(SECCOMP_RET_KILL_THREAD);
    if (strcmp(how, "no_handler") == 0) forbid(SECCOMP_RET_TRAP);
    if (strcmp(how, "blocked") == 0) {
        forbid(SECCOMP_RET_TRAP);
        signal(SIGSYS, handler);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGSYS);
        must(sigprocmask(SIG_BLOCK, &set, NULL));
    }
    if (strcmp(how, "ignored") == 0) {
        forbid(SECCOMP_RET_TRAP);
        signal(SIGSYS, SIG_IGN);
    }
    if (strcmp(how, "strict") == 0) must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    if (strcmp(how, "strict_obeyed") == 0) {
        must(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
        char b;
        say("obeyed %ld\n", (long)syscall(SYS_read, 0, &b, 1));
        syscall(SYS_exit, 7);
    }
    if (strstr(how, "one_of_two")) {
        pthread_t thread = start(other, NULL);
        // The kernel says that a thread is gone, whatever ended it.
        pthread_join(thread, NULL);
        must(syscall(SYS_getppid));
        say("the other one goes on\n");
        return 0;
    }
    syscall(SYS_getppid);
    say("not reached\n");
}
