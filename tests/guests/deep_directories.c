// A directory deeper than any path may be long: one gets there step by step, and learns where one is only in part.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

int main(void) {
    char name[256];
    memset(name, 'd', 255);
    name[255] = 0;
    int depth = 0;
    char where[PATH_MAX];
    int top = must(open(".", O_RDONLY | O_DIRECTORY));
    while (syscall(SYS_getcwd, where, sizeof where) > 0) {
        must(mkdir(name, 0700));
        must(chdir(name));
        depth++;
        expect(depth < 100);
    }
    expect(errno == ENAMETOOLONG || errno == ERANGE);
    say("%d deep: %s\n", depth, strerrorname_np(errno));
    // libc finds out by itself, or gives up.
    char *found = getcwd(NULL, 0);
    if (found) expect(strlen(found) > PATH_MAX);
    say("getcwd %s\n", found ? "found out" : strerrorname_np(errno));
    must(close(must(creat("bottom", 0600))));
    struct stat st;
    must(stat("bottom", &st));
    name[254] = 0;
    must(symlink(name, "short"));
    expect(readlink("short", where, sizeof where) == 254);
    must(unlink("short"));
    must(unlink("bottom"));
    name[254] = 'd';
    for (int i = 0; i < depth; i++) {
        must(chdir(".."));
        must(rmdir(name));
    }
    must(fchdir(top));
    // A working directory that is gone.
    must(mkdir("gone", 0700));
    must(chdir("gone"));
    must(rmdir("../gone"));
    fails(ENOENT, syscall(SYS_getcwd, where, sizeof where));
    fails(ENOENT, open("file", O_CREAT | O_WRONLY, 0600));
    must(stat(".", &st));
    expect(st.st_nlink == 0);
    fails(ENOENT, mkdir("below", 0700));
    must(fchdir(top));
    say("inode %lu\n", st.st_ino);
}
