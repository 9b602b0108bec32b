// Permissions: chmod in all its calls, the mask of new files, the bits that writing and new owners take away.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

static unsigned mode(const char *name) {
    struct stat st;
    must(lstat(name, &st));
    return st.st_mode & 07777;
}

int main(void) {
    umask(027);
    int fd = must(open("file", O_CREAT | O_RDWR, 0777));
    expect(mode("file") == 0750);
    must(mkdir("dir", 01777));
    expect(mode("dir") == 01750);
    expect(umask(0) == 027 && umask(07777) == 0 && umask(022) == 0777);
    must(chmod("file", 04711));
    expect(mode("file") == 04711);
    must(fchmod(fd, 0640));
    must(fchmodat(AT_FDCWD, "file", 0604, 0));
    expect(mode("file") == 0604);
    must(symlink("file", "link"));
    must(chmod("link", 0600));
    expect(mode("file") == 0600 && mode("link") == 0777);
    int r = fchmodat(AT_FDCWD, "link", 0600, AT_SYMLINK_NOFOLLOW);
    expect(r == -1 && (errno == EOPNOTSUPP || errno == ENOTSUP));
    r = syscall(452, fd, "", 0644, AT_EMPTY_PATH);
    expect((r == 0 && mode("file") == 0644) || errno == ENOSYS || errno == EPERM);
    fails(EINVAL, fchmodat(AT_FDCWD, "file", 0600, 1 << 30));
    fails(EBADF, fchmod(must(open("file", O_PATH)), 0600));
    // Owners: to oneself it is always allowed, and takes the set-id bits.
    must(chmod("file", 06755));
    must(chown("file", getuid(), getgid()));
    say("after chown: 0%o\n", mode("file"));
    must(fchown(fd, -1, -1));
    must(lchown("link", getuid(), -1));
    must(fchownat(fd, "", -1, getgid(), AT_EMPTY_PATH));
    fails(ENOENT, fchownat(AT_FDCWD, "", -1, -1, 0));
    fails(EINVAL, fchownat(AT_FDCWD, "file", -1, -1, 1 << 30));
    fails(EBADF, fchown(77, 0, 0));
    fails(ENOTDIR, chmod("file/below", 0600));
    must(chmod("file", 06755));
    expect(write(fd, "x", 1) == 1);
    say("after a write: 0%o\n", mode("file"));
    must(chmod("file", 0));
    say("nobody's: read %d, write %d, run %d\n", access("file", R_OK), access("file", W_OK), access("file", X_OK));
    expect(access("file", F_OK) == 0);
    // What is open stays open.
    expect(pwrite(fd, "y", 1, 0) == 1);
}
