// select over descriptors beyond 1024, in sets of any size; sets that are changed, left, or too small.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>
#include <sys/select.h>

enum { WORDS = 64, HIGH = 2500 };
typedef unsigned long set[WORDS];

static void put(set s, int fd) { s[fd / 64] |= 1ul << fd % 64; }
static bool in(set s, int fd) { return s[fd / 64] >> fd % 64 & 1; }

int main(void) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_max < 3000) {
        say("too few descriptors here\n");
        return 0;
    }
    limit.rlim_cur = 3000;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    int tube[2];
    must(pipe(tube));
    must(dup2(tube[0], HIGH));
    must(dup2(tube[1], HIGH - 1));
    set reading = {0}, writing = {0};
    put(reading, HIGH);
    put(reading, tube[0]);
    put(writing, HIGH - 1);
    reading[40] = 0xfedcul << 32;
    struct timeval now = {0, 0};
    // Descriptor 2500 is in word 39: what lies behind its word is not looked at.
    expect(syscall(SYS_select, HIGH + 1, reading, writing, NULL, &now) == 1);
    expect(!in(reading, HIGH) && in(writing, HIGH - 1) && reading[40] == 0xfedcul << 32);
    expect(write(HIGH - 1, "x", 1) == 1);
    put(reading, HIGH);
    put(reading, tube[0]);
    memset(writing, 0, sizeof writing);
    expect(syscall(SYS_select, HIGH + 1, reading, NULL, NULL, &now) == 2);
    expect(in(reading, HIGH) && in(reading, tube[0]));
    // Only as far as it is said.
    expect(syscall(SYS_select, HIGH, reading, NULL, NULL, &now) == 1 && in(reading, tube[0]));
    struct timespec soon = {0, 1000};
    memset(reading, 0, sizeof reading);
    put(reading, HIGH);
    expect(syscall(SYS_pselect6, HIGH + 1, reading, NULL, NULL, &soon, NULL) == 1 && in(reading, HIGH));
    put(reading, HIGH - 7);
    fails(EBADF, syscall(SYS_select, HIGH + 1, reading, NULL, NULL, &now));
    expect(in(reading, HIGH) && in(reading, HIGH - 7));
    fails(EINVAL, syscall(SYS_select, -1, reading, NULL, NULL, &now));
    fails(EINVAL, syscall(SYS_select, 0, NULL, NULL, NULL, &(struct timeval){-1, 0}));
    // Sets end with the page.
    unsigned long *page = (unsigned long *)must(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap((char *)page + 4096, 4096));
    unsigned long *end = page + 512 - HIGH / 64 - 1;
    end[HIGH / 64] = 1ul << HIGH % 64;
    expect(syscall(SYS_select, HIGH + 1, end, NULL, NULL, &now) == 1);
    fails(EFAULT, syscall(SYS_select, HIGH + 100, end, NULL, NULL, &now));
    say("pipe %d %d\n", tube[0], tube[1]);
}
