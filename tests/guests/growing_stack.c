// A mapping that grows down by itself, and what lies below it.
#include "guest.h"

int main(void) {
    enum { PAGE = 4096 };
    char *area = (char *)must(mmap(NULL, 1024 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(area, 1024 * PAGE));
    char *top = (char *)must(mmap(area + 1000 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0));
    for (int i = 3; i >= -100; i--) top[i * PAGE] = (char)i;
    for (int i = 3; i >= -100; i--) expect(top[i * PAGE] == (char)i);
    int ends[2];
    must(pipe(ends));
    // A system call that writes below the mapping makes it grow, too.
    expect(write(ends[1], "below", 5) == 5);
    ssize_t n = read(ends[0], top - 101 * PAGE + 10, 5);
    expect(n == 5 || (n == -1 && errno == EFAULT));
    say("grew from 0x%lx, then %zd\n", (unsigned long)top, n);
}
