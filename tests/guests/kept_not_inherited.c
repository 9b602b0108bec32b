// A long run that makes a child in the end: of memory that is not inherited by children (MADV_DONTFORK), or wiped for them (MADV_WIPEONFORK), each has
// what the kernel promises, also in a replay that begins long after that was asked for.
//   kept_not_inherited ROUNDS
// run: 100
#include "guest.h"
#include <sys/wait.h>

enum { PAGE = 4096 };

static bool is_there(const char *p) {
    int tube[2];
    must(pipe(tube));
    ssize_t n = write(tube[1], p, 1);
    must(close(tube[0]));
    must(close(tube[1]));
    return n == 1;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 100);
    char *all[3];
    for (int i = 0; i < 3; i++) {
        all[i] = (char *)must(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        *all[i] = (char)('a' + i);
    }
    must(madvise(all[1], PAGE, MADV_WIPEONFORK));
    must(madvise(all[2], PAGE, MADV_DONTFORK));
    uint64_t bytes[128];
    for (long i = 0; i < rounds; i++) {
        must(syscall(SYS_getrandom, bytes, sizeof bytes, 0));
        if (i % 100 == 0) say("round %ld: %llu\n", i, (unsigned long long)bytes[0]);
    }
    pid_t child = must(fork());
    if (child == 0) {
        say("inherited %c, wiped %d, there %d\n", *all[0], *all[1], is_there(all[2]));
        expect(*all[0] == 'a' && *all[1] == 0 && !is_there(all[2]));
        _exit(0);
    }
    int status;
    must(waitpid(child, &status, 0));
    expect(status == 0 && *all[1] == 'b' && *all[2] == 'c');
    return 0;
}
