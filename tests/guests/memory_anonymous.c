// Anonymous memory: mmap, munmap in the middle, mprotect, mremap, MAP_FIXED, madvise, brk.
// variant: static -static
#include "guest.h"
#include <sys/resource.h>

enum { PAGE = 4096 };

static bool readable(const void *p) {
    // A write to a pipe tells whether memory can be read, without a fault.
    static int ends[2];
    if (!ends[0]) must(pipe(ends));
    ssize_t n = write(ends[1], p, 1);
    if (n == 1) {
        char c;
        expect(read(ends[0], &c, 1) == 1);
    }
    return n == 1;
}

int main(void) {
    char *m = (char *)must(mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    say("16 pages at 0x%lx\n", (unsigned long)m);
    for (int i = 0; i < 16; i++) {
        expect(m[i * PAGE] == 0);
        m[i * PAGE] = 'a' + i;
    }
    must(munmap(m + 4 * PAGE, 2 * PAGE));
    expect(readable(m + 3 * PAGE) && !readable(m + 4 * PAGE) && !readable(m + 5 * PAGE) && readable(m + 6 * PAGE));
    char *again = (char *)must(mmap(m + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    expect(again == m + 4 * PAGE && again[0] == 0);
    fails(EEXIST, mmap(m, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    must(mprotect(m + 8 * PAGE, PAGE, PROT_NONE));
    expect(!readable(m + 8 * PAGE));
    must(mprotect(m + 8 * PAGE, PAGE, PROT_READ));
    expect(m[8 * PAGE] == 'a' + 8);
    fails(ENOMEM, mprotect(m + 5 * PAGE, PAGE, PROT_READ));
    must(madvise(m + 10 * PAGE, 2 * PAGE, MADV_DONTNEED));
    expect(m[10 * PAGE] == 0 && m[11 * PAGE] == 0 && m[12 * PAGE] == 'a' + 12);
    int advice = madvise(m + 12 * PAGE, PAGE, MADV_FREE);
    expect(advice == 0 || errno == EINVAL);
    madvise(m, PAGE, MADV_WILLNEED);
    madvise(m, PAGE, MADV_NOHUGEPAGE);

    char *block = (char *)must(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    strcpy(block, "moved along");
    block = (char *)must(mremap(block, 4 * PAGE, 400 * PAGE, MREMAP_MAYMOVE));
    expect(strcmp(block, "moved along") == 0 && block[399 * PAGE] == 0);
    char *there = (char *)must(mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    expect((char *)must(mremap(block, 400 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there)) == there);
    expect(strcmp(there, "moved along") == 0 && !readable(block));
    there = (char *)must(mremap(there, 8 * PAGE, PAGE, 0));
    expect(!readable(there + PAGE));
    fails(EFAULT, mremap((void *)(16 * PAGE), PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    char *left = (char *)mremap(there, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (left != MAP_FAILED) expect(strcmp(left, "moved along") == 0 && there[0] == 0);
    say("moved to 0x%lx, then to 0x%lx\n", (unsigned long)block, (unsigned long)left);

    char *start = (char *)sbrk(0);
    expect((char *)sbrk(3 * PAGE + 100) == start);
    memset(start, 7, 3 * PAGE + 100);
    expect((char *)sbrk(-2 * PAGE) == start + 3 * PAGE + 100);
    expect((char *)sbrk(2 * PAGE) == start + PAGE + 100);
    // What was given back comes again as zeros, from the next page boundary on.
    expect(start[3 * PAGE + 99] == 0 && start[PAGE] == 7);
    unsigned long end = syscall(SYS_brk, 0);
    expect(end == (unsigned long)start + 3 * PAGE + 100 && (unsigned long)syscall(SYS_brk, 1) == end);
    say("heap ends at 0x%lx\n", end);

    unsigned char present[16];
    must(mincore(m, 4 * PAGE, present));
    must(msync(m, 4 * PAGE, MS_ASYNC));
    int locked = mlock(m, PAGE);
    expect(locked == 0 || errno == EPERM || errno == ENOMEM || errno == EAGAIN);
    if (locked == 0) must(munlock(m, PAGE));
    char *populated = (char *)must(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_NORESERVE, -1, 0));
    expect(populated[PAGE] == 0);
    char *low = (char *)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (low != MAP_FAILED) expect((unsigned long)low < 1ul << 32);
    char *hinted = (char *)must(mmap((void *)0x200000000000, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    say("low 0x%lx, hinted 0x%lx, present %d\n", (unsigned long)low, (unsigned long)hinted, present[0] & 1);
    fails(ENOMEM, mmap(NULL, 1ul << 47, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
