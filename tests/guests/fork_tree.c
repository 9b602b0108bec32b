// A tree of processes, deep and wide; every one has memory of its own.
// run: 3 2
// run: 1 6
// run: 20 1
#include "guest.h"
#include <sys/wait.h>

static int value = 1;

static int grow(int width, int depth, int level) {
    int sum = value;
    for (int i = 0; i < width && depth > 0; i++) {
        value = level * 10 + i;
        pid_t pid = must(fork());
        if (pid == 0) {
            expect(value == level * 10 + i);
            int below = grow(width, depth - 1, level + 1);
            say("%d at level %d: %d below\n", getpid(), level + 1, below);
            _exit(below & 0x3f);
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    char *memory = malloc(10000);
    memset(memory, level, 10000);
    sum += (int)(hash_bytes(memory, 10000) & 7);
    free(memory);
    return sum;
}

int main(int argc, char **argv) {
    int sum = grow(number(argc, argv, 1, 3), number(argc, argv, 2, 2), 0);
    say("root: %d\n", sum);
}
