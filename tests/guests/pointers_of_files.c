// A bad pointer in every place of the calls on files: EFAULT, whichever it is, and the good buffers beside it are left alone.
// variant: companion -DGUEST_COMPANION
// flags: -Wno-nonnull
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/uio.h>

int main(void) {
    void *bad = (void *)0x123456789000;
    char good[256];
    memset(good, '#', sizeof good);
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), tube[2], dir = must(open(".", O_RDONLY | O_DIRECTORY));
    expect(write(fd, "0123456789", 10) == 10);
    must(lseek(fd, 0, SEEK_SET));
    must(pipe(tube));
    expect(write(tube[1], "abc", 3) == 3);
    must(symlink("file", "link"));
    fails(EFAULT, syscall(SYS_openat, AT_FDCWD, bad, O_RDONLY));
    fails(EFAULT, syscall(SYS_creat, bad, 0600));
    fails(EFAULT, syscall(SYS_link, bad, "x"));
    fails(EFAULT, syscall(SYS_link, "file", bad));
    fails(EFAULT, syscall(SYS_rename, bad, "x"));
    fails(EFAULT, syscall(SYS_rename, "file", bad));
    fails(EFAULT, syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, bad, 0));
    fails(EFAULT, syscall(SYS_symlink, bad, "x"));
    fails(EFAULT, syscall(SYS_symlink, "x", bad));
    fails(EFAULT, syscall(SYS_readlink, "link", bad, 10));
    fails(EFAULT, syscall(SYS_readlink, bad, good, 10));
    fails(EFAULT, syscall(SYS_newfstatat, AT_FDCWD, "file", bad, 0));
    fails(EFAULT, syscall(SYS_newfstatat, AT_FDCWD, bad, good, 0));
    fails(EFAULT, syscall(SYS_fstat, fd, bad));
    fails(EFAULT, syscall(SYS_lstat, "link", bad));
    fails(EFAULT, syscall(SYS_statfs, ".", bad));
    fails(EFAULT, syscall(SYS_fstatfs, fd, bad));
    fails(EFAULT, syscall(SYS_getdents64, dir, bad, 1024));
    fails(EFAULT, syscall(SYS_pread64, fd, bad, 10, 0));
    fails(EFAULT, syscall(SYS_pwrite64, fd, bad, 10, 0));
    fails(EFAULT, syscall(SYS_readv, fd, bad, 1));
    fails(EFAULT, syscall(SYS_writev, fd, bad, 1));
    fails(EFAULT, syscall(SYS_preadv, fd, (struct iovec[]){{bad, 5}}, 1, 0, 0));
    fails(EFAULT, syscall(SYS_pwritev, fd, (struct iovec[]){{bad, 5}}, 1, 0, 0));
    fails(EFAULT, syscall(SYS_read, tube[0], bad, 3));
    fails(EFAULT, syscall(SYS_sendfile, tube[1], fd, bad, 5));
    fails(EFAULT, syscall(SYS_splice, fd, bad, tube[1], NULL, 5, 0));
    fails(EFAULT, syscall(SYS_copy_file_range, fd, bad, fd, NULL, 5, 0));
    fails(EFAULT, syscall(SYS_copy_file_range, fd, NULL, fd, bad, 5, 0));
    fails(EFAULT, syscall(SYS_utimensat, AT_FDCWD, "file", bad, 0));
    fails(EFAULT, syscall(SYS_utimes, "file", bad));
    fails(EFAULT, syscall(SYS_utime, "file", bad));
    fails(EFAULT, syscall(SYS_truncate, bad, 5));
    fails(EFAULT, syscall(SYS_mkdir, bad, 0700));
    fails(EFAULT, syscall(SYS_chdir, bad));
    fails(EFAULT, syscall(SYS_unlinkat, AT_FDCWD, bad, 0));
    fails(EFAULT, syscall(SYS_access, bad, 0));
    fails(EFAULT, syscall(SYS_getcwd, bad, 4096));
    fails(EFAULT, syscall(SYS_statx, AT_FDCWD, bad, 0, STATX_ALL, good));
    fails(EFAULT, syscall(SYS_fcntl, fd, F_SETLK, bad));
    fails(EFAULT, syscall(SYS_fcntl, fd, F_GETLK, bad));
    fails(EFAULT, syscall(SYS_fcntl, fd, F_GETOWN_EX, bad));
    fails(EFAULT, syscall(SYS_memfd_create, bad, 0));
    fails(EFAULT, syscall(SYS_ioctl, tube[0], 0x541b, bad));
    fails(EFAULT, syscall(SYS_execve, bad, NULL, NULL));
    fails(EFAULT, syscall(SYS_execve, "/bin/true", bad, NULL));
    fails(EFAULT, syscall(SYS_execve, "/bin/true", (char *[]){bad, NULL}, NULL));
    fails(EFAULT, syscall(SYS_execve, "/bin/true", (char *[]){good, NULL}, bad));
    for (size_t i = 0; i < sizeof good; i++) expect(good[i] == '#');
    // Nothing was read, moved or lost.
    expect(lseek(fd, 0, SEEK_CUR) == 0 && read(fd, good, 100) == 10 && read(tube[0], good, 100) == 3);
    say("descriptor %d\n", fd);
}
