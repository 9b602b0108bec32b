// statx(2): masks, flags and descriptors; it agrees with fstat; what was not asked for; errors.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/sysmacros.h>

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0604));
    expect(write(fd, "twelve bytes", 12) == 12);
    must(symlink("file", "link"));
    struct stat st;
    struct statx x, y;
    must(fstat(fd, &st));
    memset(&x, 0xff, sizeof x);
    must(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS | STATX_BTIME, &x));
    expect((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    expect(x.stx_ino == st.st_ino && x.stx_size == 12 && x.stx_nlink == 1 && x.stx_mode == st.st_mode && x.stx_uid == st.st_uid);
    expect(makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev && x.stx_blksize == st.st_blksize);
    expect(x.stx_mtime.tv_sec == st.st_mtim.tv_sec && x.stx_mtime.tv_nsec == st.st_mtim.tv_nsec);
    must(statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &y));
    expect(memcmp(&x, &y, sizeof x) == 0);
    must(statx(AT_FDCWD, "link", AT_STATX_DONT_SYNC, STATX_INO, &y));
    expect(y.stx_ino == st.st_ino);
    must(statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_SIZE, &y));
    expect(S_ISLNK(y.stx_mode) && y.stx_size == 4);
    // Nothing asked for: something may come all the same.
    must(statx(AT_FDCWD, "/dev/null", 0, 0, &y));
    say("mask %x, device %u.%u\n", y.stx_mask, y.stx_rdev_major, y.stx_rdev_minor);
    must(statx(AT_FDCWD, "/proc/self", AT_NO_AUTOMOUNT, STATX_ALL, &y));
    say("attributes %llx of %llx\n", y.stx_attributes, y.stx_attributes_mask);
    say("mount %llu\n", (statx(fd, "", AT_EMPTY_PATH, 0x1000, &y), *(unsigned long long *)((char *)&y + 0x90)));
    fails(EINVAL, statx(AT_FDCWD, "file", 0, 0x80000000u, &y));
    fails(EINVAL, statx(AT_FDCWD, "file", 1 << 30, STATX_ALL, &y));
    fails(EINVAL, statx(AT_FDCWD, "file", AT_STATX_SYNC_TYPE, STATX_ALL, &y));
    fails(EFAULT, statx(AT_FDCWD, "file", 0, STATX_ALL, (struct statx *)8));
    fails(ENOENT, statx(AT_FDCWD, "", 0, STATX_ALL, &y));
    fails(EBADF, statx(77, "", AT_EMPTY_PATH, STATX_ALL, &y));
    fails(ENOTDIR, statx(fd, "below", 0, STATX_ALL, &y));
    say("born %lld.%09u, inode %llu\n", x.stx_btime.tv_sec, x.stx_btime.tv_nsec, x.stx_ino);
}
