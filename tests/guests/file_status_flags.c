// F_SETFL: which flags of an open file change, which don't, and who else sees it; hints of how long data lives.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

enum { LARGE = 0100000 };

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600)), copy = must(dup(fd)), other = must(open("file", O_RDWR));
    // Flags of the opening are not flags of the open file.
    expect((must(fcntl(fd, F_GETFL)) & ~LARGE) == O_RDWR);
    must(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    expect((must(fcntl(copy, F_GETFL)) & ~LARGE) == (O_RDWR | O_APPEND | O_NONBLOCK) && (must(fcntl(other, F_GETFL)) & ~LARGE) == O_RDWR);
    // The way of access stays, whatever is said.
    must(fcntl(fd, F_SETFL, O_WRONLY | O_SYNC | O_CREAT));
    expect((must(fcntl(fd, F_GETFL)) & ~LARGE) == O_RDWR);
    int synchronous = must(open("file", O_WRONLY | O_SYNC)), data = must(open("file", O_WRONLY | O_DSYNC));
    expect((must(fcntl(synchronous, F_GETFL)) & O_SYNC) == O_SYNC && (must(fcntl(data, F_GETFL)) & O_SYNC) == O_DSYNC);
    must(fcntl(fd, F_SETFL, O_NOATIME));
    expect(must(fcntl(fd, F_GETFL)) & O_NOATIME);
    int r = open("/", O_RDONLY | O_NOATIME);
    expect(r >= 0 || errno == EPERM);
    expect(write(other, "0123456789", 10) == 10);
    must(fcntl(copy, F_SETFL, O_APPEND));
    expect(pwrite(fd, "!", 1, 0) == 1);
    struct stat st;
    must(fstat(fd, &st));
    // With O_APPEND, pwrite appends as well (a known fault of Linux).
    expect(st.st_size == 11);
    fails(EBADF, fcntl(77, F_GETFL));
    uint64_t hint = 99;
    r = fcntl(fd, F_GET_RW_HINT, &hint);
    expect(r == 0 && hint == RWH_WRITE_LIFE_NOT_SET);
    hint = RWH_WRITE_LIFE_LONG;
    must(fcntl(fd, F_SET_RW_HINT, &hint));
    hint = 99;
    must(fcntl(other, F_GET_RW_HINT, &hint));
    expect(hint == RWH_WRITE_LIFE_LONG);
    hint = 77;
    fails(EINVAL, fcntl(fd, F_SET_RW_HINT, &hint));
    fails(EFAULT, fcntl(fd, F_GET_RW_HINT, (uint64_t *)8));
    // Which descriptors are one open file (kcmp(2)): equal, or an order that means nothing.
    long same = syscall(SYS_kcmp, getpid(), getpid(), 0, fd, copy), not = syscall(SYS_kcmp, getpid(), getpid(), 0, fd, other);
    expect(same == 0 || errno == EPERM || errno == ENOSYS);
    if (same == 0) expect(not == 1 || not == 2 || not == 3);
    long query = fcntl(fd, 1027, copy);
    expect(query == 1 || errno == EINVAL);
    say("inode %lu, order %ld, query %ld\n", st.st_ino, not, query);
}
