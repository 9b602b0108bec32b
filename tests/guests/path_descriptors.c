// Descriptors that only name a place (O_PATH): what may be done with them, and what may not.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/statfs.h>
#include <sys/xattr.h>

int main(void) {
    must(mkdir("dir", 0700));
    int file = must(open("dir/file", O_CREAT | O_RDWR, 0600));
    expect(write(file, "inside", 6) == 6);
    must(symlink("file", "dir/link"));
    int dir = must(open("dir", O_PATH)), path = must(open("dir/file", O_PATH | O_CLOEXEC)), link = must(open("dir/link", O_PATH | O_NOFOLLOW));
    char text[64];
    struct stat st;
    struct statfs fs;
    expect((fcntl(path, F_GETFL) & ~0100000) == O_PATH);
    expect(fcntl(path, F_GETFD) == FD_CLOEXEC);
    fails(EBADF, read(path, text, 1));
    fails(EBADF, write(path, text, 1));
    fails(EBADF, ftruncate(path, 0));
    fails(EBADF, fchmod(path, 0600));
    fails(EBADF, fchown(path, -1, -1));
    fails(EBADF, lseek(path, 0, SEEK_SET));
    fails(EBADF, fsync(path));
    fails(EBADF, fgetxattr(path, "user.x", text, sizeof text));
    fails(EBADF, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, path, 0));
    fails(EBADF, syscall(SYS_getdents64, dir, text, sizeof text));
    fails(EBADF, fcntl(path, F_SETFL, 0));
    must(fstat(path, &st));
    expect(st.st_size == 6);
    must(fstatfs(path, &fs));
    must(fstat(link, &st));
    expect(S_ISLNK(st.st_mode));
    expect(readlinkat(link, "", text, sizeof text) == 4 && memcmp(text, "file", 4) == 0);
    fails(ENOENT, readlinkat(path, "", text, sizeof text));
    expect(faccessat(dir, "file", R_OK, 0) == 0);
    must(fchdir(dir));
    must(access("file", F_OK));
    must(fchdir(must(open("..", O_PATH | O_DIRECTORY))));
    int copy = must(dup(path));
    expect(fcntl(copy, F_GETFD) == 0);
    // Opened in earnest, through /proc.
    snprintf(text, sizeof text, "/proc/self/fd/%d", path);
    int again = must(open(text, O_RDONLY));
    expect(read(again, text, sizeof text) == 6);
    fails(ELOOP, open("dir/link", O_RDONLY | O_NOFOLLOW));
    snprintf(text, sizeof text, "/proc/self/fd/%d", link);
    fails(ELOOP, open(text, O_RDONLY));
    say("inode %lu\n", st.st_ino);
}
