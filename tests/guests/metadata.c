// Names, links, directories and attributes of files.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <dirent.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <utime.h>

int main(void) {
    char top[] = "treeXXXXXX", cwd[PATH_MAX], target[100];
    expect(mkdtemp(top) != NULL);
    must(chdir(top));
    expect(getcwd(cwd, sizeof cwd) != NULL && strstr(cwd, top) != NULL);
    fails(ERANGE, syscall(SYS_getcwd, cwd, 2));
    must(mkdir("d", 0750));
    close(must(creat("d/file", 0640)));
    must(link("d/file", "d/second"));
    must(symlink("file", "d/sym"));
    expect(readlink("d/sym", target, sizeof target) == 4 && memcmp(target, "file", 4) == 0);
    expect(readlink("d/sym", target, 2) == 2);
    struct stat st, ln;
    must(stat("d/sym", &st));
    must(lstat("d/sym", &ln));
    expect(S_ISREG(st.st_mode) && S_ISLNK(ln.st_mode) && st.st_nlink == 2);
    say("inodes %lu %lu, device %lu\n", st.st_ino, ln.st_ino, st.st_dev);
    struct statx x;
    must(statx(AT_FDCWD, "d/file", 0, STATX_ALL, &x));
    expect(x.stx_ino == st.st_ino);
    say("born at %lld.%u\n", x.stx_btime.tv_sec, x.stx_btime.tv_nsec);
    must(chmod("d/file", 0600));
    expect(access("d/file", R_OK | W_OK) == 0);
    must(faccessat(AT_FDCWD, "d/file", R_OK, 0));
    must(utimensat(AT_FDCWD, "d/file", (struct timespec[]){{1000, 5}, {2000, 6}}, 0));
    must(stat("d/file", &st));
    expect(st.st_mtim.tv_sec == 2000 && st.st_atim.tv_sec == 1000);
    must(utime("d/file", NULL));
    must(rename("d/second", "moved"));
    must(renameat2(AT_FDCWD, "moved", AT_FDCWD, "moved again", RENAME_NOREPLACE));
    fails(EEXIST, renameat2(AT_FDCWD, "d/file", AT_FDCWD, "moved again", RENAME_NOREPLACE));
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "d/a name of some length, number %d", i);
        close(must(open(name, O_CREAT | O_EXCL | O_WRONLY, 0600)));
    }
    DIR *directory = opendir("d");
    expect(directory != NULL);
    size_t entries = 0;
    uint64_t hash = 0;
    for (struct dirent *e; (e = readdir(directory)); entries++) hash = mix(hash + e->d_ino + hash_bytes(e->d_name, strlen(e->d_name)));
    expect(entries == 304);
    rewinddir(directory);
    expect(readdir(directory) != NULL);
    say("directory hash %lu, position %ld\n", hash, telldir(directory));
    closedir(directory);
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "d/a name of some length, number %d", i);
        must(unlink(name));
    }
    struct statfs fs;
    must(statfs(".", &fs));
    struct statvfs vfs;
    must(statvfs(".", &vfs));
    say("blocks free %lu of %lu, id 0x%x\n", fs.f_bfree, fs.f_blocks, fs.f_fsid.__val[0]);
    int dir = must(open("d", O_RDONLY | O_DIRECTORY));
    int file = must(openat(dir, "file", O_RDWR));
    must(fchmod(file, 0400));
    must(fchdir(dir));
    must(unlinkat(dir, "file", 0));
    must(unlinkat(dir, "sym", 0));
    must(fstat(file, &st));
    expect(st.st_nlink == 1);
    must(chdir(".."));
    must(rmdir("d"));
    must(unlink("moved again"));
    mode_t mask = umask(0);
    umask(mask);
    char *real = realpath(".", NULL);
    expect(real != NULL);
    say("mask 0x%x\n", mask);
    must(chdir(".."));
    must(rmdir(top));
}
