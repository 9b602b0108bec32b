// Nodes of every kind that mknod makes: FIFOs, sockets, plain files, devices; how each may be opened.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/sysmacros.h>

int main(void) {
    umask(0);
    must(mknod("plain", S_IFREG | 0640, 0));
    must(mknod("without kind", 0600, 0));
    must(mknodat(AT_FDCWD, "fifo", S_IFIFO | 0600, 0));
    must(mknod("socket", S_IFSOCK | 0600, 0));
    struct stat st;
    must(stat("without kind", &st));
    expect(S_ISREG(st.st_mode));
    must(stat("fifo", &st));
    expect(S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0600);
    must(stat("socket", &st));
    expect(S_ISSOCK(st.st_mode));
    fails(EEXIST, mkfifo("plain", 0600));
    fails(EPERM, mknod("directory", S_IFDIR | 0700, 0));
    fails(EINVAL, mknod("nonsense", S_IFMT | 0600, 0));
    fails(ENXIO, open("socket", O_RDWR));
    // A device takes a capability, and then still may not be opened.
    int r = mknod("null", S_IFCHR | 0600, makedev(1, 3));
    expect(r == 0 || errno == EPERM);
    if (r == 0) {
        int fd = open("null", O_RDWR);
        say("a device: %s\n", fd >= 0 ? "opened" : strerrorname_np(errno));
        must(stat("null", &st));
        expect(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
    }
    // Nobody reads.
    fails(ENXIO, open("fifo", O_WRONLY | O_NONBLOCK));
    int reader = must(open("fifo", O_RDONLY | O_NONBLOCK));
    char text[8];
    expect(read(reader, text, 8) == 0);
    int writer = must(open("fifo", O_WRONLY | O_NONBLOCK));
    fails(EAGAIN, read(reader, text, 8));
    expect(write(writer, "through", 7) == 7 && read(reader, text, 8) == 7);
    struct pollfd p = {reader, POLLIN, 0};
    expect(poll(&p, 1, 0) == 0);
    must(close(writer));
    expect(poll(&p, 1, 0) == 1 && p.revents == POLLHUP);
    expect(read(reader, text, 8) == 0);
    fails(ESPIPE, lseek(reader, 0, SEEK_CUR));
    // Linux lets a FIFO be opened for both.
    int both = must(open("fifo", O_RDWR));
    expect(write(both, "self", 4) == 4 && read(both, text, 8) == 4);
    say("inode %lu\n", st.st_ino);
}
