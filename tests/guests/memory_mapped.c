// Files mapped to be read, privately and shared, and written through a shared mapping; the program's own image among them.
#include "guest.h"

enum { PAGE = 4096 };

static uint64_t sum(const char *p, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h;
}

int main(void) {
    char name[] = "/tmp/guest-mapped-XXXXXX";
    int fd = must(mkstemp(name));
    char block[PAGE];
    for (int i = 0; i < 3; i++) {
        memset(block, '1' + i, PAGE);
        expect(write(fd, block, PAGE) == PAGE);
    }
    char *shared = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *second = (char *)must(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE));
    shared[PAGE] = 'S';
    expect(second[0] == 'S');
    char *private = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    expect(private[0] == '1' && private[PAGE] == 'S');
    private[0] = 'P';
    expect(shared[0] == '1');
    must(close(fd));
    must(unlink(name));
    shared[2 * PAGE] = 'x';
    expect(shared[2 * PAGE] == 'x');
    say("at 0x%lx, 0x%lx, 0x%lx\n", (unsigned long)private, (unsigned long)shared, (unsigned long)second);

    int self = must(open("/proc/self/exe", O_RDONLY));
    struct stat st;
    must(fstat(self, &st));
    const char *image = (const char *)must(mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, self, 0));
    say("own image of %ld bytes, hash %lu\n", (long)st.st_size, (unsigned long)sum(image, st.st_size));
}
