// A file without a name: made with O_TMPFILE, named later, or never.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

int main(void) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0640);
    if (fd < 0) {
        expect(errno == EOPNOTSUPP || errno == EISDIR);
        say("no unnamed files here\n");
        return 0;
    }
    struct stat st, named;
    must(fstat(fd, &st));
    expect(st.st_nlink == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == (0640 & ~umask(022)));
    expect(write(fd, "unnamed", 7) == 7);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    must(linkat(AT_FDCWD, link, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    must(stat("named", &named));
    expect(named.st_ino == st.st_ino && named.st_nlink == 1 && named.st_size == 7);
    // By the descriptor alone it takes a capability (or, since Linux 6.10, to be who opened it).
    int r = linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH);
    expect(r == 0 || errno == ENOENT);
    say("linked by descriptor: %d\n", r);
    fails(EEXIST, linkat(AT_FDCWD, link, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    must(close(fd));
    char text[16];
    fd = must(open("named", O_RDONLY));
    expect(read(fd, text, sizeof text) == 7 && memcmp(text, "unnamed", 7) == 0);
    // One that may never get a name.
    fd = must(open(".", O_TMPFILE | O_EXCL | O_RDWR, 0600));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    fails(ENOENT, linkat(AT_FDCWD, link, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
    fails(EINVAL, open(".", O_TMPFILE | O_RDONLY, 0600));
    fails(ENOENT, open("nowhere", O_TMPFILE | O_RDWR, 0600));
    fails(ENOTDIR, open("named", O_TMPFILE | O_RDWR, 0600));
    char place[PATH_MAX];
    ssize_t n = must(readlink(link, place, sizeof place - 1));
    place[n] = 0;
    expect(strstr(place, " (deleted)") != NULL);
    say("inode %lu\n", st.st_ino);
}
