// What tests/debug/rr.rs looks at with debuggers that take Reprise for rr: visits of a function, of which the first argument says how many;
// with `exec` also of a child, and of another program that the child becomes. The tests know these names and numbers.
// flags: -O0
// run: 2
// run: 2 exec
#include "guest.h"
#include <sys/wait.h>

static volatile int last;

static void visit(int number) {
    last = number;
}

static void visit_from(int first, int count) {
    for (int i = 0; i < count; i++) {
        visit(first + i);
        getppid();
    }
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 0;
    const char *what = argc > 2 ? argv[2] : "";
    if (strcmp(what, "executed") == 0) {
        visit_from(1000, count);
        return 7;
    }
    visit_from(0, count);
    if (strcmp(what, "exec") == 0) {
        pid_t child = must(fork());
        if (child == 0) {
            visit_from(500, count);
            execl("/proc/self/exe", argv[0], argv[1], "executed", (char *)0);
            _exit(GUEST_FAILED);
        }
        int status = 0;
        expect(must(waitpid(child, &status, 0)) == child);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    say("%d visits, the last one was %d\n", count, last);
    return 0;
}
