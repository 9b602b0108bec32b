// A chain of processes, each the child of the one before, all alive at once; a word goes down through pipes and comes back changed.
// run: 20
// run: 60
#include "guest.h"
#include <sys/wait.h>

static int level;

static uint64_t below(int levels, uint64_t word) {
    int down[2], up[2];
    must(pipe(down));
    must(pipe(up));
    pid_t parent = getpid(), pid = must(fork());
    if (pid == 0) {
        level++;
        close(down[1]);
        close(up[0]);
        expect(getppid() == parent);
        uint64_t heard;
        expect(read(down[0], &heard, sizeof heard) == sizeof heard);
        heard = levels > 1 ? below(levels - 1, mix(heard)) : mix(heard);
        heard = mix(heard + level);
        expect(write(up[1], &heard, sizeof heard) == sizeof heard);
        // The end of the pipe from above says that we may go.
        expect(read(down[0], &heard, sizeof heard) == 0);
        _exit(level);
    }
    close(down[0]);
    close(up[1]);
    expect(write(down[1], &word, sizeof word) == sizeof word);
    uint64_t answer;
    expect(read(up[0], &answer, sizeof answer) == sizeof answer);
    close(down[1]);
    close(up[0]);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == level + 1);
    return answer;
}

int main(int argc, char **argv) {
    long levels = number(argc, argv, 1, 20);
    uint64_t wanted = 42;
    for (long i = 0; i < levels; i++) wanted = mix(wanted);
    for (long i = levels; i >= 1; i--) wanted = mix(wanted + i);
    expect(below((int)levels, 42) == wanted);
    say("%ld levels\n", levels);
}
