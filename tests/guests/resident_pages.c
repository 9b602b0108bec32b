// Which pages are in memory, and keeping them there: mincore, mlock in all forms, limits of it.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

enum { PAGE = 4096 };

int main(void) {
    char *p = (char *)must(mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(madvise(p, 8 * PAGE, MADV_NOHUGEPAGE));
    unsigned char there[12];
    memset(there, '#', sizeof there);
    must(mincore(p, 8 * PAGE, there));
    expect(there[8] == '#');
    int before = 0, after = 0;
    for (int i = 0; i < 8; i++) before += there[i] & 1;
    for (int i = 0; i < 8; i += 2) p[i * PAGE] = 1;
    must(mincore(p, 8 * PAGE, there));
    for (int i = 0; i < 8; i++) after += there[i] & 1;
    for (int i = 0; i < 8; i += 2) expect(there[i] & 1);
    say("present before %d, after %d\n", before, after);
    must(mincore(p, 1, there));
    expect(mincore(p, 0, there) == 0);
    fails(EINVAL, mincore(p + 1, PAGE, there));
    fails(EFAULT, mincore(p, PAGE, (unsigned char *)8));
    must(munmap(p + 7 * PAGE, PAGE));
    fails(ENOMEM, mincore(p, 8 * PAGE, there));
    // Rounded to whole pages; twice locked is once unlocked.
    int r = mlock(p + 100, 10);
    expect(r == 0 || errno == ENOMEM || errno == EPERM);
    must(munlock(p, PAGE));
    r = mlock2(p, 2 * PAGE, MLOCK_ONFAULT);
    expect(r == 0 || errno == ENOMEM || errno == EPERM || errno == ENOSYS);
    must(munlock(p, 2 * PAGE));
    fails(EINVAL, mlock2(p, PAGE, 99));
    fails(ENOMEM, mlock(p + 6 * PAGE, 2 * PAGE));
    fails(EINVAL, mlockall(0));
    fails(EINVAL, mlockall(99));
    r = mlockall(MCL_CURRENT | MCL_ONFAULT);
    expect(r == 0 || errno == ENOMEM || errno == EPERM);
    must(munlockall());
    struct rlimit limit;
    must(getrlimit(RLIMIT_MEMLOCK, &limit));
    say("may lock %lu\n", (unsigned long)limit.rlim_cur);
    must(msync(p, 7 * PAGE, MS_SYNC | MS_INVALIDATE));
    fails(EINVAL, msync(p, PAGE, MS_SYNC | MS_ASYNC));
    fails(EINVAL, msync(p + 1, PAGE, MS_SYNC));
    fails(ENOMEM, msync(p, 8 * PAGE, MS_ASYNC));
}
