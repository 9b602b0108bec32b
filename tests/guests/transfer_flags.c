// preadv2 and pwritev2: only what is there, appended, written through; what files and pipes make of each flag.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), tube[2];
    char a[4] = "abc", b[8] = "";
    struct iovec out = {a, 3}, in = {b, 8};
    expect(pwritev2(fd, &out, 1, 10, 0) == 3);
    // -1 is the descriptor's own position, which moves.
    expect(pwritev2(fd, &out, 1, -1, RWF_DSYNC) == 3 && lseek(fd, 0, SEEK_CUR) == 3);
    expect(pwritev2(fd, &out, 1, -1, RWF_SYNC) == 3 && lseek(fd, 0, SEEK_CUR) == 6);
    expect(pwritev2(fd, &out, 1, 0, RWF_APPEND) == 3 && lseek(fd, 0, SEEK_END) == 16);
    expect(preadv2(fd, &in, 1, 10, 0) == 6 && memcmp(b, "abcabc", 6) == 0);
    must(lseek(fd, 13, SEEK_SET));
    expect(preadv2(fd, &in, 1, -1, RWF_HIPRI) == 3 && lseek(fd, 0, SEEK_CUR) == 16);
    // What is in the page cache comes at once; what is not, EAGAIN.
    ssize_t n = preadv2(fd, &in, 1, 0, RWF_NOWAIT);
    expect(n == 8 || errno == EAGAIN || errno == EOPNOTSUPP);
    fails(EINVAL, preadv2(fd, &in, 1, -2, 0));
    fails(EOPNOTSUPP, preadv2(fd, &in, 1, 0, 1 << 20));
    must(pipe(tube));
    n = preadv2(tube[0], &in, 1, -1, RWF_NOWAIT);
    expect(n == -1 && (errno == EAGAIN || errno == EOPNOTSUPP));
    say("an empty pipe: %s\n", strerrorname_np(errno));
    expect(pwritev2(tube[1], &out, 1, -1, 0) == 3);
    fails(ESPIPE, preadv2(tube[0], &in, 1, 0, 0));
    n = preadv2(tube[0], &in, 1, -1, RWF_NOWAIT);
    expect(n == 3 || errno == EOPNOTSUPP);
    // Full: nothing or a part is taken.
    must(fcntl(tube[1], F_SETPIPE_SZ, 4096));
    static char big[1 << 16];
    struct iovec much = {big, sizeof big};
    n = pwritev2(tube[1], &much, 1, -1, RWF_NOWAIT);
    expect((n > 0 && n <= 4096) || errno == EOPNOTSUPP || errno == EAGAIN);
    say("a small pipe took %zd\n", n);
    fails(EBADF, pwritev2(must(open("file", O_RDONLY)), &out, 1, 0, 0));
    struct stat st;
    must(fstat(fd, &st));
    say("inode %lu\n", st.st_ino);
}
