// The stack grows down as far as its limit lets it, with system calls on the way.
// run: 60000
#include "guest.h"
#include <sys/resource.h>

__attribute__((noinline)) static uint64_t descend(long depth, volatile char *above) {
    volatile char frame[96];
    frame[0] = (char)depth;
    frame[95] = above[0];
    if (depth == 0) {
        say("bottom at 0x%lx\n", (unsigned long)frame);
        return 1;
    }
    if (depth % 1000 == 0) getppid();
    return descend(depth - 1, frame) + frame[0] - (char)depth + 1;
}

int main(int argc, char **argv) {
    volatile char top[1] = {1};
    long depth = number(argc, argv, 1, 60000);
    struct rlimit limit;
    must(getrlimit(RLIMIT_STACK, &limit));
    // No deeper than three quarters of the limit allow, at 160 bytes a frame or less.
    if (limit.rlim_cur != RLIM_INFINITY && (long)(limit.rlim_cur / 4 * 3 / 160) < depth) depth = limit.rlim_cur / 4 * 3 / 160;
    uint64_t frames = descend(depth, top);
    say("top at 0x%lx, %lu frames\n", (unsigned long)top, frames);
    // A large frame: the stack grows by many pages at once.
    volatile char large[1 << 20];
    for (size_t i = 0; i < sizeof large; i += 4096) large[sizeof large - 1 - i] = 1;
    expect(large[sizeof large - 1] == 1);
}
