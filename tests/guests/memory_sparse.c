// Files in memory that are mostly holes, mapped again and again: a heap's file of 64 GiB, of which some pages are used, in two views. Each mapping
// costs what was written, not what there might be; what one view stores, the other shows, and so does the file.
#include "guest.h"

#define PAGE 4096ul
#define GIB (1ul << 30)
#define ROUNDS 200

int main(void) {
    int heap = must(memfd_create("heap", MFD_CLOEXEC));
    must(ftruncate(heap, 64 * GIB));
    uint64_t sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        off_t at = (off_t)(i * 7919ul % (64 * GIB / PAGE) * PAGE * 1009 % (64 * GIB));
        char *one = must(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, heap, at / PAGE * PAGE));
        char *other = must(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, heap, at / PAGE * PAGE));
        one[17] = (char)(i + 1);
        expect(other[17] == (char)(i + 1));
        sum = sum * 31 + other[17];
        if (i % 3) must(munmap(one, 2 * PAGE));
        char back;
        expect(pread(heap, &back, 1, at / PAGE * PAGE + 17) == 1 && back == (char)(i + 1));
    }
    // Privately, and one that nobody had mapped: long, with something at its end.
    int file = must(memfd_create("file", MFD_CLOEXEC));
    must(ftruncate(file, 20 * GIB));
    expect(pwrite(file, "end", 3, 20 * GIB - 3) == 3);
    char *last = must(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 20 * GIB - PAGE));
    expect(!memcmp(last + PAGE - 3, "end", 3));
    // Only its own mapping held it open: what comes back is what was left.
    char *first = must(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    first[1] = 'x';
    must(munmap(first, PAGE));
    must(munmap(last, PAGE));
    first = must(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0));
    expect(first[1] == 'x');
    say("sum %lu\n", sum);
    return 0;
}
