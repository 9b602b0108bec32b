// Whether calls on a descriptor wait is a property that processes share: what one of them changes, the other one's next call does.
#include "guest.h"
#include <sys/wait.h>

static void set_blocking(int fd, bool blocking) {
    int flags = must(fcntl(fd, F_GETFL));
    must(fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

static char get(int fd) {
    char c = 0;
    expect(must(read(fd, &c, 1)) == 1);
    return c;
}

static void put(int fd, char c) {
    expect(must(write(fd, &c, 1)) == 1);
}

int main(void) {
    int data[2], to_child[2], to_parent[2];
    must(pipe(data));
    must(pipe(to_child));
    must(pipe(to_parent));
    pid_t child = must(fork());
    for (int round = 0; round < 3; round++) {
        if (child == 0) {
            set_blocking(data[0], false);
            put(to_parent[1], 'n'), get(to_child[0]);
            set_blocking(data[0], true);
            put(to_parent[1], 'b');
            // The parent's last word before it waits for what comes then.
            get(to_child[0]);
            put(data[1], 'x');
            get(to_child[0]);
            continue;
        }
        char c;
        get(to_parent[0]);
        for (int i = 0; i < 20; i++) fails(EAGAIN, read(data[0], &c, 1));
        put(to_child[1], 'g');
        get(to_parent[0]);
        put(to_child[1], 'w');
        expect(get(data[0]) == 'x');
        // Known to wait by now, until the child says otherwise.
        put(to_child[1], 'n');
        say("round %d\n", round);
    }
    if (child == 0) _exit(0);
    int status;
    expect(must(waitpid(child, &status, 0)) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    say("done\n");
}
