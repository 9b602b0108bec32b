// Memory that the kernel may take away at any time (MAP_DROPPABLE, Linux 6.11: what getrandom's state lies in since glibc 2.41): whatever is left of it after the
// kernel was asked to make room is the same in a replay. A kernel without it says EINVAL.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#define LEN (1 << 20)

int main(void) {
    unsigned char *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        expect(errno == EINVAL);
        // As a program does that wants it.
        at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(at != MAP_FAILED);
    }
    memset(at, 7, LEN);
    if (must(fork()) == 0) {
        say("a child finds %d\n", at[5]);
        _exit(0);
    }
    must(wait(NULL));
    for (int i = 0; i < 4; i++) madvise(at, LEN, MADV_PAGEOUT);
    long left = 0;
    for (int i = 0; i < LEN; i++) left += at[i];
    say("%ld is left\n", left);
}
