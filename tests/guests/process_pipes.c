// Processes in a pipeline: pipes, a socket pair, the signal of a broken pipe, output of all of them.
// run: 5 2000
#include "guest.h"
#include <sys/socket.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    long stages = number(argc, argv, 1, 5), lines = number(argc, argv, 2, 2000);
    int in = -1;
    for (long s = 0; s < stages; s++) {
        int next[2];
        must(s % 2 ? socketpair(AF_UNIX, SOCK_STREAM, 0, next) : pipe(next));
        if (must(fork()) == 0) {
            close(next[0]);
            if (in < 0) {
                for (long i = 0; i < lines; i++) dprintf(next[1], "%ld\n", i);
                _exit(0);
            }
            FILE *from = fdopen(in, "r"), *to = fdopen(next[1], "w");
            long n;
            while (fscanf(from, "%ld", &n) == 1) fprintf(to, "%ld\n", (long)(mix(n + s) % 100000));
            fclose(to);
            say("stage %ld is through\n", s);
            _exit(0);
        }
        close(next[1]);
        if (in >= 0) close(in);
        in = next[0];
    }
    FILE *from = fdopen(in, "r");
    uint64_t sum = 0;
    long n, count = 0;
    while (fscanf(from, "%ld", &n) == 1) sum = sum * 31 + n, count++;
    for (long s = 0; s < stages; s++) {
        int status;
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect(count == lines);
    // Nobody reads any more.
    int broken[2];
    must(pipe(broken));
    pid_t pid = must(fork());
    if (pid == 0) {
        close(broken[0]);
        for (;;) expect(write(broken[1], "x", 1) == 1);
    }
    close(broken[0]);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    say("%ld lines, %#lx\n", count, (unsigned long)sum);
}
