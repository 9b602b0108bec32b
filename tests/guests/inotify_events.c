// Watching a directory: making, writing, moving, deleting; cookies; buffers that are too small; watches that go.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/inotify.h>

static int fd;

static void drain(const char *what) {
    _Alignas(struct inotify_event) char buffer[4096];
    say("%s:\n", what);
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0) {
            expect(errno == EAGAIN);
            return;
        }
        for (char *p = buffer; p < buffer + n;) {
            struct inotify_event *e = (struct inotify_event *)p;
            say("  watch %d mask %x cookie %s name %s\n", e->wd, e->mask, e->cookie ? "yes" : "no", e->len ? e->name : "");
            p += sizeof *e + e->len;
        }
    }
}

int main(void) {
    must(mkdir("watched", 0700));
    fd = must(inotify_init1(IN_NONBLOCK));
    int watch = must(inotify_add_watch(fd, "watched", IN_ALL_EVENTS));
    int f = must(open("watched/a", O_CREAT | O_RDWR, 0600));
    drain("made");
    expect(write(f, "text", 4) == 4);
    must(ftruncate(f, 2));
    must(fchmod(f, 0644));
    must(close(f));
    drain("changed");
    must(rename("watched/a", "watched/b"));
    must(link("watched/b", "watched/c"));
    drain("moved");
    char little[8];
    must(unlink("watched/b"));
    tell(read(fd, little, sizeof little));
    drain("removed");
    int other = must(inotify_add_watch(fd, "watched/c", IN_DELETE_SELF | IN_ATTRIB));
    expect(other != watch);
    tell(inotify_add_watch(fd, "watched", IN_CREATE) - watch);
    must(unlink("watched/c"));
    drain("gone itself");
    must(mkdir("watched/d", 0700));
    must(rmdir("watched/d"));
    must(rmdir("watched"));
    drain("directory gone");
    tell(inotify_rm_watch(fd, watch));
    tell(inotify_add_watch(fd, "nowhere", IN_ALL_EVENTS));
    tell(inotify_add_watch(fd, ".", 0));
    tell(inotify_add_watch(1, ".", IN_CREATE));
    tell(inotify_init1(64));
}
