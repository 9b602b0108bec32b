// Children that outlive who made them: each is told another parent than that which the trace knows as its maker.
// run: 6
#include "guest.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    int families = number(argc, argv, 1, 6), ends[2];
    must(pipe(ends));
    for (int i = 0; i < families; i++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            pid_t maker = getpid();
            // Gone before its child can have done a thing, as often as not.
            pid_t below = must(fork());
            if (below != 0) _exit(i);
            close(ends[0]);
            if (i % 2) burn(300000);
            say("%d made %d, whose parent is now %d\n", maker, getpid(), getppid());
            _exit(40 + i);
        }
    }
    // A sibling of ours, as CLONE_PARENT makes it: we are not its parent.
    if (must(fork()) == 0) {
        pid_t maker = getppid();
        if (must(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0)) == 0) {
            say("%d made %d, whose parent is now %d\n", maker, getpid(), getppid());
            _exit(60);
        }
        _exit(61);
    }
    close(ends[1]);
    char none;
    expect(read(ends[0], &none, 1) == 0);
    int ended = 0, status;
    while (wait(&status) > 0) ended++;
    expect(ended == families + 2);
    return 0;
}
