// Names of files: links, renaming over, exchanging, unlinking what is open, directories in the way, loops.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

static void look(const char *name) {
    struct stat st;
    if (lstat(name, &st) != 0) {
        say("%s: %s\n", name, strerrorname_np(errno));
        return;
    }
    say("%s: mode %o, %lu links, %ld bytes\n", name, st.st_mode, st.st_nlink, S_ISDIR(st.st_mode) ? 0 : st.st_size);
}

static void make(const char *name, const char *text) {
    int fd = must(open(name, O_CREAT | O_EXCL | O_WRONLY, 0640));
    expect(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    must(close(fd));
}

int main(void) {
    umask(022);
    make("a", "file a");
    make("b", "b");
    tell(open("a", O_CREAT | O_EXCL | O_WRONLY, 0600));
    tell(link("a", "c"));
    tell(link("a", "b"));
    look("a");
    tell(rename("a", "c"));
    look("a");
    tell(rename("b", "c"));
    look("c");
    look("a");
    tell(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE));
    tell(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_EXCHANGE));
    look("a");
    tell(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_EXCHANGE));
    tell(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", 99));
    tell(mkdir("dir", 0777));
    tell(mkdir("dir", 0777));
    tell(mkdir("dir/x/y", 0777));
    make("dir/inside", "");
    tell(rmdir("dir"));
    tell(unlink("dir"));
    tell(rename("a", "dir"));
    tell(rename("dir", "a"));
    tell(rename("dir", "dir/below"));
    tell(rmdir("a"));
    tell(link("dir", "e"));
    look("dir");
    tell(symlink("a", "s"));
    tell(symlink("loop2", "loop1"));
    tell(symlink("loop1", "loop2"));
    tell(open("loop1", O_RDONLY));
    tell(open("s", O_RDONLY | O_NOFOLLOW));
    look("s");
    char text[8];
    ssize_t n = readlink("/proc/self/cwd/s", text, 8);
    say("%zd %.*s\n", n, (int)n, text);
    tell(readlink("a", text, 8));
    tell(readlink("s", text, 0));
    tell(symlink("0123456789", "long"));
    tell(readlink("long", text, 4));
    int fd = must(open("a", O_RDWR));
    tell(unlink("a"));
    tell(unlink("a"));
    struct stat st;
    must(fstat(fd, &st));
    say("%lu links\n", st.st_nlink);
    tell(pread(fd, text, 8, 0));
    int path = must(open("c", O_PATH));
    tell(read(path, text, 1));
    tell(fchmod(path, 0600));
    char longest[300];
    memset(longest, 'n', sizeof longest);
    longest[299] = 0;
    tell(open(longest, O_RDONLY));
    static char path_too_long[5000];
    memset(path_too_long, '/', sizeof path_too_long - 1);
    tell(open(path_too_long, O_RDONLY));
    tell(chdir("dir"));
    tell(open("inside", O_RDONLY));
    tell(getcwd(text, 4));
    tell(chdir("nowhere"));
    tell(chdir("inside"));
    tell(access("inside", R_OK | W_OK));
    tell(access("inside", 77));
    tell(faccessat(AT_FDCWD, "../dir", X_OK, AT_EACCESS));
    int temporary = open(".", O_TMPFILE | O_RDWR, 0600);
    if (temporary >= 0) {
        must(fstat(temporary, &st));
        expect(st.st_nlink == 0);
    }
}
