// Watches of inotify: once only, more added, no following of links; files that go while they are watched; events that become one.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int fd;

static void drain(const char *what) {
    int waiting;
    must(ioctl(fd, FIONREAD, &waiting));
    _Alignas(struct inotify_event) char buffer[4096];
    say("%s: %d bytes\n", what, waiting);
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0) {
        expect(errno == EAGAIN && waiting == 0);
        return;
    }
    expect(n == waiting);
    for (char *p = buffer; p < buffer + n;) {
        struct inotify_event *e = (struct inotify_event *)p;
        say("  watch %d mask %x %s\n", e->wd, e->mask, e->len ? e->name : "itself");
        p += sizeof *e + e->len;
    }
}

int main(void) {
    fd = must(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    must(mkdir("dir", 0700));
    int file = must(open("dir/file", O_CREAT | O_RDWR, 0600));
    must(symlink("dir/file", "link"));
    int watch = must(inotify_add_watch(fd, "dir/file", IN_MODIFY));
    // The same file: the same watch, with another mask.
    expect(inotify_add_watch(fd, "link", IN_ATTRIB | IN_MASK_ADD) == watch);
    expect(write(file, "a", 1) == 1 && write(file, "b", 1) == 1);
    must(fchmod(file, 0644));
    drain("two alike are one");
    expect(inotify_add_watch(fd, "dir/file", IN_ATTRIB) == watch);
    expect(write(file, "c", 1) == 1);
    drain("replaced mask");
    fails(EEXIST, inotify_add_watch(fd, "dir/file", IN_MODIFY | IN_MASK_CREATE));
    fails(EINVAL, inotify_add_watch(fd, "dir/file", IN_MODIFY | IN_MASK_CREATE | IN_MASK_ADD));
    int link = must(inotify_add_watch(fd, "link", IN_DELETE_SELF | IN_DONT_FOLLOW));
    expect(link != watch);
    fails(ENOTDIR, inotify_add_watch(fd, "dir/file", IN_MODIFY | IN_ONLYDIR));
    int once = must(inotify_add_watch(fd, "dir", IN_CREATE | IN_ONESHOT));
    must(close(must(creat("dir/one", 0600))));
    must(close(must(creat("dir/two", 0600))));
    drain("once");
    fails(EINVAL, inotify_rm_watch(fd, once));
    must(unlink("link"));
    drain("the link is gone");
    must(unlink("dir/file"));
    drain("unlinked while open");
    must(close(file));
    drain("closed at last");
    fails(EINVAL, inotify_add_watch(fd, "dir", 0));
    fails(EINVAL, inotify_add_watch(file, "dir", IN_CREATE) == -1 && errno == EBADF ? (errno = EINVAL, -1) : -1);
    fails(EINVAL, inotify_add_watch(must(open("dir", O_RDONLY)), "dir", IN_CREATE));
    fails(EFAULT, inotify_add_watch(fd, (char *)8, IN_CREATE));
    // Excluded: what happens to files that have no name any more.
    int gone = must(open("dir/gone", O_CREAT | O_RDWR, 0600));
    must(inotify_add_watch(fd, "dir", IN_MODIFY | IN_EXCL_UNLINK));
    expect(write(gone, "a", 1) == 1);
    must(unlink("dir/gone"));
    expect(write(gone, "b", 1) == 1);
    drain("excluded");
}
