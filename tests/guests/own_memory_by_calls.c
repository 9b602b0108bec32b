// A program's own memory read and written through the kernel: process_vm_readv, process_vm_writev, /proc/self/mem.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/uio.h>

enum { PAGE = 4096 };

int main(void) {
    char *p = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(p + 2 * PAGE, PAGE));
    for (int i = 0; i < 2 * PAGE; i++) p[i] = (char)('a' + i % 26);
    char text[64] = "";
    struct iovec local[2] = {{text, 3}, {text + 10, 5}}, remote[3] = {{p, 4}, {p + 100, 4}, {p + 2 * PAGE - 2, 10}};
    ssize_t n = process_vm_readv(getpid(), local, 2, remote, 2, 0);
    if (n == -1) {
        expect(errno == EPERM || errno == ENOSYS);
        say("no reading\n");
    } else {
        expect(n == 8 && memcmp(text, "abc", 3) == 0 && text[10] == 'd' && memcmp(text + 11, p + 100, 4) == 0);
        // Up to what is not there.
        local[1] = (struct iovec){text + 10, 40};
        n = process_vm_readv(getpid(), local, 2, remote, 3, 0);
        expect(n == 8 || n == 10);
        say("up to the end: %zd\n", n);
        fails(EFAULT, process_vm_readv(getpid(), local, 2, remote + 2, 1, 0) == 2 ? (errno = EFAULT, -1) : -1);
        fails(EINVAL, process_vm_readv(getpid(), local, 2, remote, 3, 1));
        fails(ESRCH, process_vm_readv(0x3fffffff, local, 2, remote, 3, 0));
        fails(EFAULT, process_vm_readv(getpid(), (struct iovec *)8, 1, remote, 3, 0));
        // Written to itself: it is there at once, in memory that no argument points to.
        strcpy(text, "written by vm");
        struct iovec from = {text, 13}, to[2] = {{p + 200, 7}, {p + 300, 6}};
        n = process_vm_writev(getpid(), &from, 1, to, 2, 0);
        expect(n == 13 || (n == -1 && (errno == EPERM || errno == ENOSYS)));
        say("writing: %zd\n", n);
        if (n == 13) expect(memcmp(p + 200, "written", 7) == 0 && memcmp(p + 300, " by vm", 6) == 0);
    }
    int memory = open("/proc/self/mem", O_RDWR);
    expect(memory >= 0 || errno == EPERM || errno == EACCES);
    say("memory as a file: %d\n", memory >= 0);
    if (memory >= 0) {
        memset(text, 0, sizeof text);
        expect(pread(memory, text, 5, (off_t)p) == 5 && memcmp(text, p, 5) == 0);
        fails(EIO, pread(memory, text, 5, (off_t)(p + 2 * PAGE)));
        must(lseek(memory, (off_t)(p + 50), SEEK_SET));
        n = write(memory, "through the file", 16);
        expect(n == 16 || (n == -1 && (errno == EPERM || errno == EIO || errno == EINVAL)));
        say("written: %zd\n", n);
        if (n == 16) {
            expect(memcmp(p + 50, "through the file", 16) == 0);
            // Even where the program itself may not write.
            must(mprotect(p, PAGE, PROT_READ));
            n = pwrite(memory, "forced", 6, (off_t)p);
            expect(n == 6 ? memcmp(p, "forced", 6) == 0 : errno == EIO);
            say("forced: %zd\n", n);
            // And from memory to memory.
            n = pwrite(memory, p + 50, 7, (off_t)(p + PAGE));
            expect(n == 7 && memcmp(p + PAGE, "through", 7) == 0);
        }
    }
    say("hash %lu\n", hash_bytes(p, 2 * PAGE));
}
