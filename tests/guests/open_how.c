// openat2(2): how far a path may lead, and what its structure may hold.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <linux/openat2.h>

static long opens(int dir, const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags, .mode = flags & O_CREAT ? 0600 : 0, .resolve = resolve};
    long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0) {
        must(close((int)fd));
        fd = 0;
    }
    return fd;
}

int main(void) {
    must(mkdir("tree", 0700));
    must(mkdir("tree/sub", 0700));
    must(close(must(creat("tree/sub/file", 0600))));
    must(close(must(creat("outside", 0600))));
    must(symlink("../outside", "tree/escape"));
    must(symlink("sub/file", "tree/inner"));
    must(symlink("/sub/file", "tree/absolute"));
    int dir = must(open("tree", O_PATH | O_DIRECTORY));
    expect(opens(dir, "escape", O_RDONLY, 0) == 0);
    fails(EXDEV, opens(dir, "escape", O_RDONLY, RESOLVE_BENEATH));
    fails(EXDEV, opens(dir, "../outside", O_RDONLY, RESOLVE_BENEATH));
    fails(EXDEV, opens(dir, "absolute", O_RDONLY, RESOLVE_BENEATH));
    expect(opens(dir, "sub/../inner", O_RDONLY, RESOLVE_BENEATH) == 0);
    expect(opens(dir, "absolute", O_RDONLY, RESOLVE_IN_ROOT) == 0);
    fails(ENOENT, opens(dir, "escape", O_RDONLY, RESOLVE_IN_ROOT));
    fails(ELOOP, opens(dir, "inner", O_RDONLY, RESOLVE_NO_SYMLINKS));
    fails(ELOOP, opens(AT_FDCWD, "/proc/self/exe", O_RDONLY, RESOLVE_NO_MAGICLINKS));
    fails(EXDEV, opens(AT_FDCWD, "/proc/self/stat", O_RDONLY, RESOLVE_NO_XDEV));
    expect(opens(dir, "sub/new", O_CREAT | O_EXCL | O_WRONLY, RESOLVE_BENEATH) == 0);
    // All that can be looked up without waiting, or EAGAIN.
    long cached = opens(dir, "sub/file", O_RDONLY, RESOLVE_CACHED);
    expect(cached == 0 || errno == EAGAIN);
    fails(EINVAL, opens(dir, "sub", O_RDONLY, 1 << 30));
    fails(EINVAL, opens(dir, "sub", 1ull << 40, 0));
    fails(EINVAL, opens(dir, "sub", O_RDONLY, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
    struct {
        struct open_how how;
        uint64_t more;
    } longer = {{.flags = O_RDONLY}, 0};
    must(syscall(SYS_openat2, dir, "sub", &longer, sizeof longer));
    longer.more = 1;
    fails(E2BIG, syscall(SYS_openat2, dir, "sub", &longer, sizeof longer));
    fails(EINVAL, syscall(SYS_openat2, dir, "sub", &longer, 8));
    longer.how.mode = 0600;
    fails(EINVAL, syscall(SYS_openat2, dir, "sub", &longer, sizeof longer.how));
    fails(EFAULT, syscall(SYS_openat2, dir, "sub", (void *)8, sizeof longer.how));
    fails(E2BIG, syscall(SYS_openat2, dir, "sub", &longer, 1 << 20));
    say("done\n");
}
