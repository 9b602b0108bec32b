// Mappings that the kernel has joined are moved and enlarged as one: of a file, of shared memory, and of memory that was once protected.
// run: memory_joined.file
#include "guest.h"

#define PAGE 4096ul
#define FROM ((char *)0x100000000000)
#define TO ((char *)0x110000000000)

static char *map(char *at, size_t pages, int flags, int fd, size_t page) {
    char *p = must(mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd, page * PAGE));
    expect(p == at);
    return p;
}

int main(int argc, char **argv) {
    expect(argc == 2);
    int fd = must(open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600));
    for (int i = 0; i < 12; i++) {
        char page[PAGE];
        memset(page, 'a' + i, sizeof page);
        expect(write(fd, page, sizeof page) == sizeof page);
    }
    for (int shared = 0; shared < 2; shared++) {
        int flags = shared ? MAP_SHARED : MAP_PRIVATE;
        for (size_t i = 0; i < 4; i++) map(FROM + 2 * i * PAGE, 2, flags, fd, 2 * i);
        // As one: to another place, and larger.
        char *p = must(mremap(FROM, 8 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, TO));
        for (size_t i = 0; i < 10; i++) expect(p[i * PAGE] == (char)('a' + i));
        p[3 * PAGE] = 'X';
        p[9 * PAGE] = 'Y';
        // Larger where they are.
        expect(mremap(p, 10 * PAGE, 12 * PAGE, 0) == p);
        expect(p[11 * PAGE] == 'l' && p[3 * PAGE] == 'X' && p[9 * PAGE] == 'Y');
        char back;
        expect(pread(fd, &back, 1, 3 * PAGE) == 1 && back == (shared ? 'X' : 'd'));
        must(munmap(p, 12 * PAGE));
    }
    // Memory that was several mappings in between.
    char *p = map(FROM, 4, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map(FROM + 4 * PAGE, 4, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 8; i++) p[i * PAGE] = i + 1;
    must(mprotect(p + 2 * PAGE, 2 * PAGE, PROT_READ));
    must(mprotect(p + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE));
    p = must(mremap(p, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, TO));
    for (int i = 0; i < 8; i++) expect(p[i * PAGE] == i + 1);
    p[15 * PAGE] = 1;
    p = must(mremap(p, 16 * PAGE, 3 * PAGE, MREMAP_MAYMOVE));
    fails(ENOMEM, mprotect(p, 4 * PAGE, PROT_READ));
    expect(p[2 * PAGE] == 3);
    say("all where it belongs\n");
    return 0;
}
