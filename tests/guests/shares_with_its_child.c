// A process and its child have memory in common; it goes on when it is told so on its standard input.
//   shares_with_its_child [ROUNDS]
// run: 20
#include "guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 20);
    volatile uint64_t *shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t child = must(fork());
    if (child == 0) {
        while (shared[0] == 0) usleep(1000);
        _exit(0);
    }
    say("ready\n");
    char c;
    must(read(0, &c, 1));
    for (long i = 0; i < rounds; i++) usleep(1000);
    shared[0] = 1;
    int status;
    expect(must(waitpid(child, &status, 0)) == child && status == 0);
    say("end\n");
}
