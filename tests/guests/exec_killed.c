// Processes are killed while they exec: sooner or later, from before the call to after the new program's beginning.
// run: 60
#include "guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc == 3) {
        for (;;) pause();
    }
    long rounds = number(argc, argv, 1, 60);
    for (long round = 0; round < rounds; round++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            execl("/proc/self/exe", argv[0], "until", "killed", NULL);
            _exit(1);
        }
        must(nanosleep(&(struct timespec){.tv_nsec = round * 100000}, NULL));
        must(kill(pid, SIGKILL));
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    say("%ld killed\n", rounds);
}
