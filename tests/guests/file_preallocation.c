// fallocate in all its modes: room beyond the end, holes, zeros, ranges taken out and put in; which of them a file system has.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <linux/falloc.h>

enum { BLOCK = 4096 };
static int fd;

static void look(const char *what, int result) {
    int error = result == 0 ? 0 : errno;
    static char bytes[16 * BLOCK];
    struct stat st;
    must(fstat(fd, &st));
    ssize_t n = must(pread(fd, bytes, sizeof bytes, 0));
    expect(n == st.st_size);
    char picture[17] = "";
    for (ssize_t i = 0; i < n / BLOCK; i++) picture[i] = bytes[i * BLOCK] ? bytes[i * BLOCK] : '.';
    say("%s: %s, %ld bytes, %s\n", what, error ? strerrorname_np(error) : "done", (long)st.st_size, picture);
}

int main(void) {
    fd = must(open("file", O_CREAT | O_RDWR, 0600));
    char block[BLOCK];
    for (int i = 0; i < 8; i++) {
        memset(block, 'a' + i, BLOCK);
        expect(write(fd, block, BLOCK) == BLOCK);
    }
    look("written", 0);
    look("punched", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, BLOCK));
    look("zeroed", fallocate(fd, FALLOC_FL_ZERO_RANGE, 4 * BLOCK, BLOCK));
    look("zeroed beyond the end", fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 7 * BLOCK, 3 * BLOCK));
    look("collapsed", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, BLOCK, 2 * BLOCK));
    look("inserted", fallocate(fd, FALLOC_FL_INSERT_RANGE, BLOCK, BLOCK));
    look("collapsed odd bytes", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 1, BLOCK));
    look("collapsed to the end", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, BLOCK, 100 * BLOCK));
    look("grown", fallocate(fd, 0, 0, 10 * BLOCK));
    look("room only", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 12 * BLOCK));
    look("two modes", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE, 0, BLOCK));
    look("unknown mode", fallocate(fd, 1 << 20, 0, BLOCK));
    look("too far", fallocate(fd, 0, INT64_MAX - 1, BLOCK));
    int reader = must(open("file", O_RDONLY)), tube[2];
    fails(EBADF, fallocate(reader, 0, 0, BLOCK));
    must(pipe(tube));
    fails(ESPIPE, fallocate(tube[1], 0, 0, BLOCK));
    expect(posix_fallocate(fd, 0, 11 * BLOCK) == 0);
    look("posix", 0);
}
