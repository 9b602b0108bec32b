// The limit of the stack changes at run time: lowered, raised, and set by another process. A stack that would grow beyond faults where the
// kernel says so.
// run: lowered
// run: raised
// run: by_child
#include "guest.h"

#include <sys/resource.h>
#include <sys/wait.h>

static char other[1 << 16];
static long depth;
static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

__attribute__((noinline)) static long deeper(long most) {
    volatile char room[1 << 16];
    room[0] = 1;
    depth++;
    return depth >= most ? 0 : deeper(most) + room[0];
}

// How many rooms of 64 KiB the stack has, up to so many.
static long rooms(long most) {
    depth = 0;
    if (sigsetjmp(back, 1) == 0) deeper(most);
    return depth;
}

static void limit(pid_t pid, rlim_t bytes) {
    struct rlimit r;
    must(prlimit(pid, RLIMIT_STACK, NULL, &r));
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    must(prlimit(pid, RLIMIT_STACK, &r, NULL));
}

int main(int argc, char **argv) {
    expect(argc == 2);
    stack_t st = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    must(sigaltstack(&st, NULL));
    must(sigaction(SIGSEGV, &action, NULL));
    if (!strcmp(argv[1], "lowered")) {
        limit(0, 1 << 20);
        long few = rooms(64);
        expect(few > 4 && few <= 16);
        limit(0, 4 << 20);
        long more = rooms(128);
        expect(more > 48 && more <= 64);
        say("%ld rooms, then %ld\n", few, more);
    } else if (!strcmp(argv[1], "raised")) {
        limit(0, 2 << 20);
        struct rlimit r;
        must(getrlimit(RLIMIT_STACK, &r));
        r.rlim_cur = 6 << 20;
        must(setrlimit(RLIMIT_STACK, &r));
        long n = rooms(200);
        expect(n > 80 && n <= 96);
        say("%ld rooms\n", n);
    } else {
        pid_t child = must(fork());
        if (child == 0) {
            limit(getppid(), 1 << 20);
            _exit(0);
        }
        int status;
        must(waitpid(child, &status, 0));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        long n = rooms(64);
        expect(n > 4 && n <= 16);
        say("%ld rooms\n", n);
    }
    return 0;
}
