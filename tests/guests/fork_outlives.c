// A process whose parent ends first: it goes on, has another parent, and writes the last line.
// run: => 5
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    int pipe_of[2];
    must(pipe(pipe_of));
    pid_t me = getpid();
    pid_t pid = must(fork());
    if (pid == 0) {
        must(setsid());
        pid_t again = must(fork());
        if (again != 0) _exit(0);
        close(pipe_of[1]);
        // The end of the pipe: everybody else is gone.
        char c;
        expect(read(pipe_of[0], &c, 1) == 0);
        expect(getppid() != me);
        burn(2000000);
        say("the daemon has the last word\n");
        _exit(0);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 0);
    say("the parent ends\n");
    return 5;
}
