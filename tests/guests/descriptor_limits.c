// The table of descriptors: the lowest free number, RLIMIT_NOFILE, duplicates that share position and flags.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

int main(void) {
    int a = must(open("/dev/zero", O_RDONLY)), b = must(dup(a)), c = must(open("/dev/null", O_RDWR));
    say("%d %d %d\n", a, b, c);
    must(close(a));
    tell(open("/dev/null", O_RDONLY));
    tell(dup2(b, b));
    tell(dup3(b, b, 0));
    tell(dup3(b, 20, O_CLOEXEC));
    tell(fcntl(20, F_GETFD));
    tell(dup2(20, 21));
    tell(fcntl(21, F_GETFD));
    tell(fcntl(b, F_DUPFD, 20));
    tell(fcntl(b, F_DUPFD_CLOEXEC, 100));
    tell(fcntl(b, F_DUPFD, -1));
    tell(fcntl(b, F_DUPFD, 1 << 30));
    tell(dup2(b, 1 << 30));
    char name[] = "fileXXXXXX";
    int f = must(mkstemp(name)), g = must(dup(f)), h = must(open(name, O_RDWR));
    must(unlink(name));
    tell(write(f, "0123456789", 10));
    tell(lseek(g, 0, SEEK_CUR));
    tell(lseek(h, 0, SEEK_CUR));
    tell(fcntl(g, F_SETFL, O_APPEND));
    tell(fcntl(f, F_GETFL) & O_APPEND);
    tell(fcntl(h, F_GETFL) & O_APPEND);
    tell(lseek(f, 2, SEEK_SET));
    tell(write(f, "x", 1));
    tell(lseek(g, 0, SEEK_CUR));
    struct rlimit limit = {40, 40}, old;
    must(getrlimit(RLIMIT_NOFILE, &old));
    limit.rlim_max = old.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    int opened = 0;
    while (dup(1) >= 0) opened++;
    expect(errno == EMFILE);
    say("%d more\n", opened);
    int tube[2];
    tell(pipe(tube));
    tell(open("/dev/null", O_RDONLY));
    tell(dup2(1, 60));
    tell(dup2(1, 39));
    must(close(30));
    tell(pipe(tube));
    tell(open("/dev/null", O_RDONLY));
}
