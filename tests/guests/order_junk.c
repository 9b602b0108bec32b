// Arguments that a call does not read hold what another thread happened to write. (libc's syscall() and its wrappers of calls with a variable
// number of arguments pass whatever lies there.) Nothing that this program does depends on it.
#include "guest.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static volatile long junk;
static int word;

static void *writes(void *p) {
    for (long i = 0; i < 50000000; i++) junk++;
    return p;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 200);
    pthread_t writer = start(writes, NULL);
    for (long i = 0; i < rounds; i++) {
        must(syscall(SYS_futex, &word, FUTEX_WAKE, 1, junk, junk, junk));
        must(syscall(SYS_futex, &word, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 1, junk, junk, 1));
        must(syscall(SYS_fcntl, 1, F_GETFD, junk));
        long file = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, junk);
        must((int)file);
        close((int)file);
        must(syscall(SYS_prctl, PR_SET_NAME, "junk", junk, junk, junk));
        must(syscall(SYS_prctl, PR_GET_DUMPABLE, junk, junk, junk, junk));
    }
    finish(writer);
    say("done\n");
}
