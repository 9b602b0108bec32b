// Every call that takes a path, with every kind of path that leads nowhere: each says the same errno.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static char buffer[512];
static struct timespec now[2];

static long attempt(int call, const char *path) {
    switch (call) {
    case 0: return open(path, O_RDONLY);
    case 1: return open(path, O_WRONLY | O_CREAT, 0600);
    case 2: return syscall(SYS_stat, path, buffer);
    case 3: return syscall(SYS_access, path, F_OK);
    case 4: return truncate(path, 5);
    case 5: return chdir(path);
    case 6: return rmdir(path);
    case 7: return unlink(path);
    case 8: return chmod(path, 0600);
    case 9: return readlink(path, buffer, sizeof buffer);
    case 10: return rename(path, "target");
    case 11: return rename("file", path);
    case 12: return link(path, "target");
    case 13: return mkdir(path, 0700);
    case 14: return symlink("file", path);
    case 15: return utimensat(AT_FDCWD, path, now, 0);
    case 16: return statfs(path, (struct statfs *)buffer);
    case 17: return getxattr(path, "user.x", buffer, sizeof buffer);
    case 18: return inotify_add_watch(must(inotify_init()), path, IN_MODIFY);
    case 19: return mkfifo(path, 0600);
    case 20: return chroot(path);
    case 21: return syscall(SYS_execve, path, NULL, NULL);
    default: return -2;
    }
}

int main(void) {
    must(close(must(creat("file", 0600))));
    must(symlink("round", "about"));
    must(symlink("about", "round"));
    static char component[260], whole[4200];
    memset(component, 'c', sizeof component - 1);
    for (size_t i = 0; i + 2 < sizeof whole; i += 2) memcpy(whole + i, "./", 2);
    // In this order: of all, not of a call.
    const char *paths[] = {"nowhere/at/all", "file/below", "about/and", component, whole, "", (const char *)8};
    static const int errors[] = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, ENAMETOOLONG, ENOENT, EFAULT};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        for (int call = 0;; call++) {
            errno = 0;
            long r = attempt(call, paths[p]);
            if (r == -2) break;
            if (r == -1 && errno == errors[p]) continue;
            say("FAILED path %zu, call %d: %ld, %s\n", p, call, r, strerrorname_np(errno));
            return GUEST_FAILED;
        }
        say("%s everywhere\n", strerrorname_np(errors[p]));
    }
    fails(EISDIR, open(".", O_WRONLY));
    fails(EISDIR, truncate(".", 0));
    fails(EISDIR, open("nowhere/", O_CREAT | O_WRONLY, 0600));
    fails(EINVAL, rmdir("."));
    fails(ENOTEMPTY, rmdir(".."));
    fails(EXDEV, link("file", "/dev/shm/guest"));
    fails(EXDEV, rename("file", "/dev/shm/guest"));
    fails(ENOTDIR, open("file", O_DIRECTORY));
    fails(ENOTDIR, open("file/", O_RDONLY));
    fails(EINVAL, open("file", O_DIRECTORY | O_CREAT, 0600));
    fails(EINVAL, truncate("file", -1));
}
