// Extended attributes: by path, by link and by descriptor; made, replaced, listed, removed; buffers that are too small.
// flags: -Wno-stringop-overflow -Wno-stringop-overread
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/xattr.h>

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    must(symlink("file", "link"));
    char value[300], list[512];
    if (setxattr("file", "user.first", "one", 3, XATTR_CREATE) != 0) {
        expect(errno == EOPNOTSUPP || errno == EPERM);
        say("no attributes here\n");
        return 0;
    }
    fails(EEXIST, setxattr("link", "user.first", "two", 3, XATTR_CREATE));
    fails(ENODATA, fsetxattr(fd, "user.second", "two", 3, XATTR_REPLACE));
    must(fsetxattr(fd, "user.first", "replaced", 8, XATTR_REPLACE));
    memset(value, '#', sizeof value);
    expect(getxattr("link", "user.first", value, sizeof value) == 8 && memcmp(value, "replaced##", 10) == 0);
    expect(fgetxattr(fd, "user.first", NULL, 0) == 8);
    fails(ERANGE, getxattr("file", "user.first", value, 7));
    fails(ENODATA, getxattr("file", "user.nothing", value, sizeof value));
    fails(ENODATA, getxattr("file", "user.nothing", NULL, 0));
    memset(value, 'v', sizeof value);
    must(setxattr("file", "user.long", value, 200, 0));
    must(setxattr("file", "user.empty", "", 0, 0));
    expect(getxattr("file", "user.empty", value, sizeof value) == 0);
    ssize_t n = must(listxattr("file", list, sizeof list)), names = 0;
    uint64_t sum = 0;
    for (char *name = list; name < list + n; name += strlen(name) + 1)
        if (strncmp(name, "user.", 5) == 0) names++, sum += hash_bytes(name, strlen(name));
    expect(names == 3);
    say("names hash %lu\n", sum);
    expect(flistxattr(fd, NULL, 0) == n);
    fails(ERANGE, listxattr("file", list, 3));
    // A link itself has none for users.
    fails(EPERM, lsetxattr("link", "user.first", "x", 1, 0));
    tell(llistxattr("link", list, sizeof list));
    tell(lgetxattr("link", "user.first", value, sizeof value));
    fails(EOPNOTSUPP, setxattr("file", "nonsense.name", "x", 1, 0));
    fails(EOPNOTSUPP, setxattr("file", "plain", "x", 1, 0));
    fails(EINVAL, setxattr("file", "user.x", "x", 1, 99));
    fails(ERANGE, setxattr("file", "", "x", 1, 0));
    fails(E2BIG, setxattr("file", "user.x", list, 1 << 20, 0));
    fails(EFAULT, setxattr("file", "user.x", (void *)8, 10, 0));
    fails(EFAULT, getxattr("file", "user.long", (void *)8, 300));
    must(removexattr("file", "user.long"));
    must(fremovexattr(fd, "user.first"));
    fails(ENODATA, fremovexattr(fd, "user.first"));
    fails(ENODATA, lremovexattr("file", "user.long"));
    fails(EBADF, fremovexattr(77, "user.first"));
}
