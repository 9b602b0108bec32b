// A first process as containers have it that are started without an init: it runs a command, and reaps nobody else.
//   reaps_nobody COUNT COMMAND...     so many of its children are dead already when the command begins
#include "../guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    expect(argc > 2);
    for (long i = atol(argv[1]); i > 0; i--) {
        pid_t child = must(fork());
        if (child == 0) _exit(0);
        siginfo_t end;
        must(waitid(P_PID, child, &end, WEXITED | WNOWAIT));
    }
    pid_t command = must(fork());
    if (command == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    must(waitpid(command, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
