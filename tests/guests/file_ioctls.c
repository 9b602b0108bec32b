// ioctls on files: block size, blocks, extents, flags, versions, clones; what the file system has of them.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static const char *outcome(int result) {
    return result == 0 ? "works" : strerrorname_np(errno);
}

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), other = must(open("other", O_CREAT | O_RDWR, 0600));
    static char bytes[1 << 16];
    memset(bytes, 'b', sizeof bytes);
    expect(write(fd, bytes, sizeof bytes) == sizeof bytes && write(other, bytes, sizeof bytes) == sizeof bytes);
    must(fsync(fd));
    int number = 0;
    long flags = 0;
    must(ioctl(fd, FIGETBSZ, &number));
    expect(number > 0);
    say("block size %d\n", number);
    number = 0;
    say("first block %s: ", outcome(ioctl(fd, FIBMAP, &number)));
    say("%d\n", number);
    say("flags %s: ", outcome(ioctl(fd, FS_IOC_GETFLAGS, &flags)));
    say("%lx\n", flags);
    flags |= FS_NODUMP_FL;
    say("no dump %s\n", outcome(ioctl(fd, FS_IOC_SETFLAGS, &flags)));
    say("version %s: ", outcome(ioctl(fd, FS_IOC_GETVERSION, &number)));
    say("%d\n", number);
    struct fsxattr attributes = {0};
    say("attributes %s: ", outcome(ioctl(fd, FS_IOC_FSGETXATTR, &attributes)));
    say("%x\n", attributes.fsx_xflags);
    struct {
        struct fiemap map;
        struct fiemap_extent extents[8];
    } extents = {.map = {.fm_length = sizeof bytes, .fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 8}};
    int r = ioctl(fd, FS_IOC_FIEMAP, &extents);
    say("extents %s: ", outcome(r));
    say("%u, at %llu\n", extents.map.fm_mapped_extents, extents.extents[0].fe_physical);
    if (r == 0) expect(extents.map.fm_mapped_extents > 0 && extents.extents[0].fe_length > 0);
    say("clone %s\n", outcome(ioctl(other, FICLONE, fd)));
    struct file_clone_range range = {.src_fd = fd, .src_length = 4096};
    say("clone of a range %s\n", outcome(ioctl(other, FICLONERANGE, &range)));
    struct {
        struct file_dedupe_range range;
        struct file_dedupe_range_info info[1];
    } same = {.range = {.src_length = 4096, .dest_count = 1}, .info = {{.dest_fd = other}}};
    r = ioctl(fd, FIDEDUPERANGE, &same);
    say("same bytes %s: ", outcome(r));
    say("%d\n", same.info[0].status);
    loff_t size = 0;
    say("size %s: ", outcome(ioctl(fd, FIOQSIZE, &size)));
    say("%ld\n", (long)size);
    expect(ioctl(fd, FIONREAD, &number) == 0 && number == 0);
    must(lseek(fd, 100, SEEK_SET));
    expect(ioctl(fd, FIONREAD, &number) == 0 && number == sizeof bytes - 100);
    fails(EFAULT, ioctl(fd, FIGETBSZ, (int *)8));
    fails(EBADF, ioctl(77, FIGETBSZ, &number));
    expect(pread(fd, bytes, 100, 0) == 100 && bytes[99] == 'b');
}
