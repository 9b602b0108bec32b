// What a private mapping has no page of its own for is its file's: stores through a shared mapping, writes and another process's stores are seen there,
// until the page is written (and again once that is dropped).
#include "guest.h"

#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 4 };

static void of(const char *kind, int fd) {
    must(ftruncate(fd, PAGES * PAGE));
    volatile char *own = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    volatile char *seen = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    expect(own != MAP_FAILED && seen != MAP_FAILED);
    // The pages are there before anybody writes.
    for (int i = 0; i < PAGES; i++) expect(own[i * PAGE] == 0 && seen[i * PAGE] == 0);
    volatile char *shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect(shared != MAP_FAILED);
    shared[1] = 'a';
    expect(own[1] == 'a' && seen[1] == 'a');
    expect(pwrite(fd, "b", 1, PAGE) == 1);
    expect(own[PAGE] == 'b' && seen[PAGE] == 'b');
    pid_t child = must(fork());
    if (child == 0) {
        shared[2 * PAGE] = 'c';
        _exit(0);
    }
    expect(waitpid(child, NULL, 0) == child);
    expect(own[2 * PAGE] == 'c' && seen[2 * PAGE] == 'c');
    own[0] = 'd';
    shared[2] = 'e';
    expect(own[2] == 0 && seen[2] == 'e' && shared[0] == 0);
    must(madvise((void *)own, PAGE, MADV_DONTNEED));
    expect(own[0] == 0 && own[1] == 'a' && own[2] == 'e');
    must(ftruncate(fd, 2 * PAGE));
    must(ftruncate(fd, PAGES * PAGE));
    expect(own[2 * PAGE] == 0 && seen[2 * PAGE] == 0 && own[PAGE] == 'b');
    printf("%s: %c%c%c\n", kind, own[1], own[PAGE], seen[2]);
}

int main(void) {
    of("memory", must(memfd_create("memory", 0)));
    of("file", must(open("file", O_CREAT | O_RDWR, 0600)));
    return 0;
}
