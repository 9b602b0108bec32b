// A file by its handle: how long it is, the same for every name, opened again without one.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

struct handle {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
};

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), mount = -7, other = -7;
    expect(write(fd, "content", 7) == 7);
    must(link("file", "second"));
    struct handle a = {.head.handle_bytes = 0}, b = {.head.handle_bytes = MAX_HANDLE_SZ};
    // A handle without room is told how much there must be.
    int r = name_to_handle_at(AT_FDCWD, "file", &a.head, &mount, 0);
    expect(r == -1);
    if (errno == EOPNOTSUPP || errno == EPERM) {
        say("no handles here\n");
        return 0;
    }
    expect(errno == EOVERFLOW && a.head.handle_bytes > 0 && a.head.handle_bytes <= MAX_HANDLE_SZ);
    memset(a.bytes, '#', sizeof a.bytes);
    must(name_to_handle_at(AT_FDCWD, "file", &a.head, &mount, 0));
    expect(a.bytes[a.head.handle_bytes] == '#');
    must(name_to_handle_at(fd, "", &b.head, &other, AT_EMPTY_PATH));
    expect(mount == other && b.head.handle_bytes == a.head.handle_bytes && memcmp(a.head.f_handle, b.head.f_handle, b.head.handle_bytes) == 0);
    b.head.handle_bytes = MAX_HANDLE_SZ;
    must(name_to_handle_at(AT_FDCWD, "second", &b.head, &other, 0));
    expect(memcmp(a.head.f_handle, b.head.f_handle, b.head.handle_bytes) == 0);
    say("handle of %u bytes, type %d, hash %lu, mount %d\n", a.head.handle_bytes, a.head.handle_type, hash_bytes(a.head.f_handle, a.head.handle_bytes), mount);
    int again = open_by_handle_at(AT_FDCWD, &a.head, O_RDONLY);
    expect(again >= 0 || errno == EPERM);
    if (again >= 0) {
        char text[8];
        expect(read(again, text, 8) == 7 && memcmp(text, "content", 7) == 0);
        must(close(again));
        // The same number of another file. (Of a file that is gone the kernel says ENOMEM while somebody makes one that gets its number.)
        a.bytes[a.head.handle_bytes - 1] ^= 0x40;
        fails(ESTALE, open_by_handle_at(AT_FDCWD, &a.head, O_RDONLY));
        must(unlink("file"));
        must(unlink("second"));
        must(close(fd));
        a.head.handle_bytes = MAX_HANDLE_SZ + 1;
        fails(EINVAL, open_by_handle_at(AT_FDCWD, &a.head, O_RDONLY));
    }
    b.head.handle_bytes = MAX_HANDLE_SZ + 1;
    fails(EINVAL, name_to_handle_at(AT_FDCWD, ".", &b.head, &other, 0));
    b.head.handle_bytes = MAX_HANDLE_SZ;
    fails(EINVAL, name_to_handle_at(AT_FDCWD, ".", &b.head, &other, 1 << 30));
    fails(EFAULT, name_to_handle_at(AT_FDCWD, ".", (struct file_handle *)8, &other, 0));
    fails(EFAULT, name_to_handle_at(AT_FDCWD, ".", &b.head, (int *)8, 0));
    fails(ENOENT, name_to_handle_at(AT_FDCWD, "nowhere", &b.head, &other, 0));
}
