// clone(2) through libc's syscall(), a site without a `mov` before its `syscall`: once it is hot and rewritten, children begin behind it, too.
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    for (int i = 0; i < 20; i++) {
        pid_t pid = must(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0));
        if (pid == 0) _exit(i);
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == i);
        say("child %d: %d\n", i, pid);
    }
}
