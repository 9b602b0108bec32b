// What does not fit: mappings beyond all limits, limits of the program's own, locked memory.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

int main(void) {
    tell(mmap(NULL, 1ul << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    tell(mmap(NULL, 1ul << 46, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    tell(mmap((void *)0x1001, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    tell(munmap((void *)0x1001, 4096));
    tell(munmap((void *)0x1000, 0));
    tell(munmap((void *)0x1000, 4096));
    tell(mprotect((void *)0x1000, 4096, PROT_READ));
    tell(mremap((void *)0x1000, 4096, 8192, MREMAP_MAYMOVE));
    tell(madvise((void *)0x1000, 4096, MADV_DONTNEED));
    tell(msync((void *)0x1000, 4096, MS_SYNC));
    unsigned char there;
    tell(mincore((void *)0x1000, 4096, &there));
    tell(mlock((void *)0x1000, 4096));
    expect(malloc(1ul << 50) == NULL && errno == ENOMEM);
    struct rlimit old, small = {64 << 20, 64 << 20};
    must(getrlimit(RLIMIT_DATA, &old));
    small.rlim_max = old.rlim_max;
    must(setrlimit(RLIMIT_DATA, &small));
    tell(mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(setrlimit(RLIMIT_DATA, &old));
    char *p = (char *)must(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p[5] = 5;
    // Nowhere to grow in place.
    char *q = (char *)must(mmap(p + (1 << 19), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    expect(q == p + (1 << 19));
    tell(mremap(p, 1 << 18, 1 << 20, 0));
    tell(munmap(p, 1 << 20));
}
