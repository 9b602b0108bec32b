// What is mounted: mountinfo, statfs and the calls that list mounts (Linux 6.8) agree about where the program is.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>

struct request {
    uint32_t size, spare;
    uint64_t mount, parameter;
};

int main(void) {
    struct statx x;
    memset(&x, 0, sizeof x);
    must(statx(AT_FDCWD, ".", 0, 0x1000, &x));
    unsigned long old_id = *(uint64_t *)((char *)&x + 0x90);
    char *text = (char *)malloc(1 << 20), line[64];
    int fd = must(open("/proc/self/mountinfo", O_RDONLY));
    size_t length = 0;
    for (ssize_t n; (n = must(read(fd, text + length, (1 << 20) - 1 - length))) > 0;) length += n;
    text[length] = 0;
    snprintf(line, sizeof line, "\n%lu ", old_id);
    expect(strstr(text, line) || strncmp(text, line + 1, strlen(line) - 1) == 0);
    struct statfs fs, again;
    struct statvfs vfs;
    must(statfs(".", &fs));
    must(fstatfs(must(open(".", O_RDONLY)), &again));
    must(statvfs(".", &vfs));
    expect(fs.f_type == again.f_type && fs.f_bsize == again.f_bsize && vfs.f_namemax == (unsigned long)fs.f_namelen);
    say("kind %lx, block %ld\n", (unsigned long)fs.f_type, (long)fs.f_bsize);
    must(statfs("/proc", &fs));
    expect(fs.f_type == 0x9fa0);
    // The ids of the new calls are others, and never used again.
    memset(&x, 0, sizeof x);
    must(statx(AT_FDCWD, ".", 0, 0x4000, &x));
    uint64_t id = x.stx_mask & 0x4000 ? *(uint64_t *)((char *)&x + 0x90) : 0, ids[300];
    struct request request = {sizeof request, 0, ~0ul, 0};
    long n = syscall(458, &request, ids, 300, 0);
    if (n < 0) {
        expect(errno == ENOSYS || errno == EPERM);
        say("no listing\n");
        return 0;
    }
    bool found = false;
    uint64_t root = 0;
    for (long i = 0; i < n; i++) found |= ids[i] == id;
    memset(text, '#', 4096);
    request = (struct request){sizeof request, 0, id, 2 | 32 /* STATMOUNT_MNT_BASIC, STATMOUNT_FS_TYPE */};
    long r = syscall(457, &request, text, 4096, 0);
    expect(r == 0 || errno == ENOENT || errno == EPERM);
    if (r == 0) {
        memcpy(&root, text + 40, sizeof root);
        uint32_t size;
        memcpy(&size, text, sizeof size);
        expect(size > 512 && size < 4096 && text[size] == '#');
    }
    request.size = 8;
    fails(EINVAL, syscall(457, &request, text, 4096, 0));
    request.size = sizeof request;
    fails(EFAULT, syscall(457, &request, (void *)8, 4096, 0));
    r = syscall(457, &request, text, 16, 0);
    expect(r == -1 && (errno == EOVERFLOW || errno == EINVAL || errno == ENOENT));
    say("%ld mounts, here is one of them: %d, id %lu, %lu\n", n, found, id, root);
}
