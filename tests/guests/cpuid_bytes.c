// The bytes of cpuid where they are data: a heap's file that may be run and written, a file that is no ELF file, a table between functions, and
// the code of a program that is mapped to be read, as emulators do. None of them changes.
// run: cpuid_bytes.heap cpuid_bytes.raw
#include "guest.h"

#include <cpuid.h>

// Decoded from any place before it this prepares eax and has a cpuid.
static const unsigned char like_code[] = {0x31, 0xc0, 0x31, 0xc9, 0x0f, 0xa2, 0xc3, 0x90};

// A table in the midst of code, which no function holds and nothing leads to.
asm(".text\n.globl table\n.balign 16\n.fill 128, 1, 0x90\ntable: .byte 0x31, 0xc0, 0x31, 0xc9, 0x0f, 0xa2, 0xc3, 0x90\n");
extern const unsigned char table[sizeof like_code];

static void fill(int fd, const void *unit, size_t len, size_t count) {
    for (size_t i = 0; i < count; i++) expect(write(fd, unit, len) == (ssize_t)len);
}

static size_t differ(const unsigned char *at, const void *unit, size_t len, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += memcmp(at + i * len, unit, len) != 0;
    return n;
}

static int fresh(const char *name) {
    return must(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
}

int main(int argc, char **argv) {
    expect(argc == 3);
    unsigned a, b, c, d;
    // The program's own is one.
    __cpuid(0, a, b, c, d);
    expect(a > 0);

    // Words of a heap.
    const uint64_t words[] = {0x50000117, 0x5025a20f, 0x50000127, 0x5025a20f};
    int fd = fresh(argv[1]);
    fill(fd, words, sizeof words, 256);
    unsigned char *heap = must(mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, fd, 0));
    expect(differ(heap, words, sizeof words, 256) == 0);
    must(mprotect(heap, 8192, PROT_READ | PROT_EXEC));
    expect(differ(heap, words, sizeof words, 256) == 0);

    // A file that looks like code all over, but is no module.
    fd = fresh(argv[2]);
    fill(fd, like_code, sizeof like_code, 512);
    unsigned char *raw = must(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    expect(differ(raw, like_code, sizeof like_code, 512) == 0);
    unsigned char *later = must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
    must(mprotect(later, 4096, PROT_READ | PROT_EXEC));
    expect(differ(later, like_code, sizeof like_code, 512) == 0);

    expect(memcmp(table, like_code, sizeof like_code) == 0);

    // The code of this program, as somebody would map it who translates it.
    fd = must(open("/proc/self/exe", O_RDONLY));
    struct stat st;
    must(fstat(fd, &st));
    unsigned char *image = must(mmap(NULL, st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    unsigned char *bytes = malloc(st.st_size);
    expect(bytes && pread(fd, bytes, st.st_size, 0) == st.st_size);
    expect(memmem(bytes, st.st_size, "\x0f\xa2", 2) != NULL);
    expect(memcmp(image, bytes, st.st_size) == 0);
    say("all as it was\n");
    return 0;
}
