// Processes that read more at a time than passes between program and recorder in one go, and are killed in the middle of it; others
// come after them and do the same.
//   killed_in_large_reads [PROCESSES]
// run: 6
// heavy
#include "guest.h"
#include <sys/wait.h>

enum { SIZE = 24 << 20 };

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 6);
    unsigned char *bytes = must(malloc(SIZE));
    int zero = must(open("/dev/zero", O_RDONLY));
    for (long i = 0; i < processes; i++) {
        pid_t child = must(fork());
        if (child == 0) {
            must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 8000 + i * 1700}, NULL));
            for (;;) expect(must(read(zero, bytes, SIZE)) == SIZE);
        }
        int status;
        must(waitpid(child, &status, 0));
        say("killed by %d\n", WTERMSIG(status));
        expect(must(read(zero, bytes, SIZE)) == SIZE && bytes[SIZE - 1] == 0);
    }
    return 0;
}
