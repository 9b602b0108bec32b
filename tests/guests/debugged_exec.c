// What tests/debug_processes.rs looks at with gdb: a process that becomes another program (`debugged`, which lies beside it), and one whose
// child does so while the parent waits. The tests know these names.
//   debugged_exec self|child|both [ARGUMENT OF debugged]
// flags: -O0
// run: self
// run: self crash => SIGSEGV
// run: child
// run: both => 7
#include "guest.h"
#include <sys/wait.h>

static int prepared;

static void prepare(int amount) {
    prepared += amount;
}

static void become(const char *me, char *argument) {
    char path[PATH_MAX];
    const char *slash = strrchr(me, '/');
    expect(slash != NULL);
    snprintf(path, sizeof path, "%.*s/debugged", (int)(slash - me), me);
    char *words[] = {"debugged", argument, NULL};
    execv(path, words);
    expect(!"execv came back");
}

static int in_child(int amount) {
    prepare(amount);
    return prepared;
}

static int in_parent(int status) {
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    expect(argc > 1);
    char *argument = argc > 2 ? argv[2] : NULL;
    for (int i = 1; i <= 3; i++) prepare(i);
    expect(prepared == 6);
    if (strcmp(argv[1], "self") == 0) become(argv[0], argument);
    pid_t child = must(fork());
    if (child == 0) {
        int sum = in_child(1);
        expect(sum == 7);
        if (strcmp(argv[1], "both") == 0) _exit(sum);
        become(argv[0], argument);
    }
    int status;
    must(waitpid(child, &status, 0));
    return in_parent(status);
}
