// Children that are killed right after they were made: before their first step, often.
// run: 60
#include "guest.h"
#include <sys/wait.h>

static void *kill_it(void *argument) {
    pid_t *pid = argument;
    // The kernel stores it. By an instruction with a LOCK prefix, which every engine sees.
    while (__sync_val_compare_and_swap(pid, 0, 0) == 0) sched_yield();
    must(kill(*pid, SIGKILL));
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = number(argc, argv, 1, 60), killed = 0;
    for (int i = 0; i < rounds; i++) {
        pid_t pid = must(fork());
        if (pid == 0) _exit(i % 7);
        must(kill(pid, SIGKILL));
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        expect(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == i % 7);
        killed += WIFSIGNALED(status);
    }
    say("%d of %d were killed\n", killed, rounds);
    // All at once, reaped in any order.
    pid_t all[20];
    for (int i = 0; i < 20; i++) {
        all[i] = must(fork());
        if (all[i] == 0)
            for (;;) pause();
    }
    for (int i = 0; i < 20; i++) must(kill(all[i], SIGKILL));
    for (int i = 0; i < 20; i++) {
        int status;
        must(wait(&status));
        expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    fails(ECHILD, wait(NULL));
    // By another thread, while its parent may still be at the making.
    for (int i = 0; i < 10; i++) {
        pid_t pid = 0;
        pthread_t killer = start(kill_it, &pid);
        pid_t made = must(syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, NULL, &pid, NULL, 0));
        if (made == 0)
            for (;;) pause();
        finish(killer);
        int status;
        expect(must(waitpid(made, &status, 0)) == made);
        expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    say("done\n");
}
