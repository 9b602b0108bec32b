// fanotify, where one may: events with a descriptor of the file, or with its handle; marks; asking for permission is left alone.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/fanotify.h>

int main(void) {
    must(mkdir("dir", 0700));
    must(close(must(creat("dir/file", 0600))));
    int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY);
    if (fd < 0) {
        expect(errno == EPERM || errno == ENOSYS);
        say("not here: %d\n", errno == EPERM);
    } else {
        must(fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN | FAN_MODIFY | FAN_EVENT_ON_CHILD, AT_FDCWD, "dir"));
        int file = must(open("dir/file", O_RDWR));
        expect(write(file, "text", 4) == 4);
        _Alignas(struct fanotify_event_metadata) char buffer[4096];
        ssize_t n = must(read(fd, buffer, sizeof buffer));
        uint64_t all = 0;
        int events = 0;
        for (struct fanotify_event_metadata *e = (struct fanotify_event_metadata *)buffer; FAN_EVENT_OK(e, n); e = FAN_EVENT_NEXT(e, n)) {
            struct stat a, b;
            char text[8];
            expect(e->vers == FANOTIFY_METADATA_VERSION && e->pid == getpid());
            must(fstat(e->fd, &a));
            must(fstat(file, &b));
            expect(a.st_ino == b.st_ino && pread(e->fd, text, 8, 0) == 4);
            must(close(e->fd));
            all |= e->mask;
            events++;
        }
        expect(all == (FAN_OPEN | FAN_MODIFY) && events >= 1);
        fails(EAGAIN, read(fd, buffer, sizeof buffer));
        must(fanotify_mark(fd, FAN_MARK_REMOVE, FAN_OPEN | FAN_MODIFY | FAN_EVENT_ON_CHILD, AT_FDCWD, "dir"));
        fails(ENOENT, fanotify_mark(fd, FAN_MARK_REMOVE, FAN_OPEN, AT_FDCWD, "dir"));
        fails(EINVAL, fanotify_mark(fd, FAN_MARK_ADD, 0, AT_FDCWD, "dir"));
        fails(ENOENT, fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "nowhere"));
        say("%d events\n", events);
    }
    // By handle, which users may have, too.
    int by_handle = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_REPORT_FID, 0);
    if (by_handle < 0 || fanotify_mark(by_handle, FAN_MARK_ADD, FAN_CLOSE_WRITE | FAN_EVENT_ON_CHILD, AT_FDCWD, "dir") != 0) {
        say("no handles\n");
        return 0;
    }
    must(close(must(open("dir/file", O_WRONLY))));
    _Alignas(struct fanotify_event_metadata) char buffer[4096];
    ssize_t n = must(read(by_handle, buffer, sizeof buffer));
    struct fanotify_event_metadata *e = (struct fanotify_event_metadata *)buffer;
    struct fanotify_event_info_fid *info = (struct fanotify_event_info_fid *)(e + 1);
    expect(e->fd == FAN_NOFD && e->mask == FAN_CLOSE_WRITE && info->hdr.info_type == FAN_EVENT_INFO_TYPE_FID);
    say("%zd bytes, hash %lu\n", n, hash_bytes(info->handle, sizeof(struct file_handle)));
}
