// mremap: shared memory doubled, places left behind, parts moved out of the middle, onto each other, over borders.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

enum { PAGE = 4096 };

static char *anonymous(int pages, int flags) {
    char *p = (char *)must(mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < pages; i++) p[i * PAGE] = (char)('a' + i);
    return p;
}

int main(void) {
    // An old size of 0 makes a second view of shared memory; there is none of private memory.
    char *shared = anonymous(2, MAP_SHARED), *view = (char *)must(mremap(shared, 0, 2 * PAGE, MREMAP_MAYMOVE));
    expect(view != shared && view[PAGE] == 'b');
    view[1] = 'v';
    expect(shared[1] == 'v');
    char *private = anonymous(8, MAP_PRIVATE);
    fails(EINVAL, mremap(private, 0, PAGE, MREMAP_MAYMOVE));
    // Out of the middle: the rest stays.
    char *moved = (char *)must(mremap(private + 2 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(4, MAP_PRIVATE)));
    expect(moved[0] == 'c' && moved[PAGE] == 'd' && moved[2 * PAGE] == 'c' && private[PAGE] == 'b' && private[4 * PAGE] == 'e');
    unsigned char there;
    fails(ENOMEM, mincore(private + 2 * PAGE, PAGE, &there));
    // Over the hole.
    fails(EFAULT, mremap(private + PAGE, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE));
    // Grown in place where there is room.
    must(munmap(private + 6 * PAGE, 2 * PAGE));
    expect(mremap(private + 4 * PAGE, 2 * PAGE, 4 * PAGE, 0) == private + 4 * PAGE && private[5 * PAGE] == 'f' && private[7 * PAGE] == 0);
    // Left behind empty; what was there is elsewhere.
    char *left = anonymous(3, MAP_PRIVATE), *gone = (char *)must(syscall(SYS_mremap, left, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    expect(gone != left && gone[2 * PAGE] == 'c' && left[2 * PAGE] == 0);
    left[0] = 'L';
    expect(gone[0] == 'a');
    fails(EINVAL, syscall(SYS_mremap, left, 3 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    fails(EINVAL, syscall(SYS_mremap, left, 3 * PAGE, 3 * PAGE, MREMAP_DONTUNMAP, NULL));
    fails(EINVAL, mremap(left, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, left + PAGE));
    fails(EINVAL, mremap(left, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, left + 1));
    fails(EINVAL, mremap(left, PAGE, PAGE, 1 << 10));
    // A file, at another place of it.
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 4; i++) expect(pwrite(fd, (char[]){(char)('0' + i)}, 1, i * PAGE) == 1);
    must(ftruncate(fd, 4 * PAGE));
    char *file = (char *)must(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE));
    file = (char *)must(mremap(file, PAGE, 3 * PAGE, MREMAP_MAYMOVE));
    expect(file[0] == '1' && file[2 * PAGE] == '3');
    char *part = (char *)must(mremap(file + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(1, MAP_PRIVATE)));
    part[1] = '!';
    char c;
    expect(part[0] == '2' && pread(fd, &c, 1, 2 * PAGE + 1) == 1 && c == '!');
    // Protections go along.
    must(mprotect(gone, PAGE, PROT_READ));
    gone = (char *)must(mremap(gone, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(1, MAP_PRIVATE)));
    fails(EFAULT, pread(fd, gone, 1, 0));
    say("at 0x%lx, 0x%lx\n", (unsigned long)view, (unsigned long)gone);
}
