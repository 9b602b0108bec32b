// The first process of a pid namespace waits for whoever becomes its child there.
//   namespace_init DIRECTORY    says its id as those outside know it, and waits for one child that it did not make
#include "guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        say("nowhere to say that it is ready\n");
        return 0;
    }
    must(chdir(argv[1]));
    must(unshare(CLONE_NEWPID));
    pid_t pid = must(fork());
    if (pid == 0) {
        expect(getpid() == 1 && getppid() == 0);
        must(close(must(open("ready", O_CREAT | O_WRONLY, 0600))));
        for (;;) {
            int status;
            pid_t who = waitpid(-1, &status, 0);
            if (who > 0) {
                say("%d ended with %d\n", who, WEXITSTATUS(status));
                return 0;
            }
            expect(errno == ECHILD);
            usleep(1000);
        }
    }
    say("%d\n", pid);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && status == 0);
}
