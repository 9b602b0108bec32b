// A program that closes every descriptor it can name, as daemons do, and goes on: numbers start at 0 again, and nothing of the
// recorder was among them. Standard output waits above 1023.
// run:
// run: range
// run: silent => 7
#include "guest.h"
#include <sys/resource.h>

static void *body(void *p) {
    return (void *)((uintptr_t)p + getpid());
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "loop";
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    int refuge = limit.rlim_cur > 1024 ? 1024 : (int)limit.rlim_cur - 1;
    must(dup2(1, refuge));
    if (strcmp(way, "range") == 0) {
        must(syscall(SYS_close_range, 0, refuge - 1, 0));
        must(syscall(SYS_close_range, refuge + 1, ~0u, 0));
    } else {
        for (int fd = 0; fd < refuge; fd++) close(fd);
    }
    expect(open("/dev/null", O_RDWR) == 0);
    int ends[2];
    must(pipe(ends));
    expect(ends[0] == 1 && ends[1] == 2);
    char byte = 0;
    expect(write(2, "x", 1) == 1 && read(1, &byte, 1) == 1 && byte == 'x');
    int64_t t = now_ns(CLOCK_MONOTONIC);
    expect((int)(uintptr_t)finish(start(body, (void *)1)) == getpid() + 1);
    for (int fd = 3; fd < refuge; fd++) fails(EBADF, fcntl(fd, F_GETFD));
    if (strcmp(way, "silent") == 0) {
        must(syscall(SYS_close_range, 0, ~0u, 0));
        return 7;
    }
    must(dup2(refuge, 1));
    say("still here at %ld\n", t);
}
