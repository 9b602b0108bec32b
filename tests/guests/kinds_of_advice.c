// madvise of every kind: what memory holds afterwards, of private, shared and file memory; which are refused where.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096 };

static char *fresh(int flags, int fd) {
    char *p = (char *)must(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0));
    for (int i = 0; i < 4; i++) p[i * PAGE] = (char)('a' + i);
    return p;
}

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), memory = must(memfd_create("memory", 0));
    must(ftruncate(fd, 4 * PAGE));
    must(ftruncate(memory, 4 * PAGE));
    char *private = fresh(MAP_PRIVATE | MAP_ANONYMOUS, -1), *shared = fresh(MAP_SHARED | MAP_ANONYMOUS, -1);
    char *file = fresh(MAP_SHARED, fd), *copy = fresh(MAP_PRIVATE, fd), *view = fresh(MAP_SHARED, memory);
    static const int harmless[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTDUMP, MADV_DODUMP, MADV_DOFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        int r = madvise(private, 4 * PAGE, harmless[i]);
        expect(r == 0 || errno == EINVAL || errno == EPERM);
        expect(private[0] == 'a' && private[3 * PAGE] == 'd');
    }
    int r;
    // Gone: zeros, the file's bytes, or nothing at all, since the memory is the file.
    copy[PAGE] = 'C';
    must(madvise(private, PAGE, MADV_DONTNEED));
    must(madvise(shared, PAGE, MADV_DONTNEED));
    must(madvise(file, PAGE, MADV_DONTNEED));
    must(madvise(copy, 2 * PAGE, MADV_DONTNEED));
    expect(private[0] == 0 && private[PAGE] == 'b' && shared[0] == 'a' && file[0] == 'a' && copy[0] == 'a' && copy[PAGE] == 'b');
    r = madvise(private + 3 * PAGE, PAGE, MADV_DONTNEED_LOCKED);
    expect(r == 0 ? private[3 * PAGE] == 0 : errno == EINVAL);
    // Guarded: touching it faults, until the guard is taken away; then there are zeros.
    r = madvise(private + 3 * PAGE, PAGE, MADV_GUARD_INSTALL);
    expect(r == 0 || errno == EINVAL);
    int tube[2];
    must(pipe(tube));
    ssize_t n = write(tube[1], private + 3 * PAGE, 1);
    expect(r == 0 ? n == -1 && errno == EFAULT : n == 1);
    must(madvise(private + 3 * PAGE, PAGE, r == 0 ? MADV_GUARD_REMOVE : MADV_NORMAL));
    expect(private[3 * PAGE] == 0 || r != 0);
    // Holes in what is shared: all views and the file see them.
    must(madvise(shared + PAGE, PAGE, MADV_REMOVE));
    must(madvise(view + 2 * PAGE, PAGE, MADV_REMOVE));
    expect(shared[0] == 'a' && shared[PAGE] == 0 && shared[2 * PAGE] == 'c' && view[2 * PAGE] == 0 && view[3 * PAGE] == 'd');
    char c = '#';
    expect(pread(memory, &c, 1, 2 * PAGE) == 1 && c == 0);
    r = madvise(file + 2 * PAGE, PAGE, MADV_REMOVE);
    expect(r == 0 ? file[2 * PAGE] == 0 : errno == EOPNOTSUPP && file[2 * PAGE] == 'c');
    say("hole in a file: %d\n", r);
    fails(EINVAL, madvise(private, PAGE, MADV_REMOVE));
    fails(EINVAL, madvise(shared, PAGE, MADV_FREE));
    // Free: the old bytes or zeros, until it is written again.
    private[2 * PAGE] = 'c';
    // A recorder may say that it knows no such advice: when it takes effect is chance.
    r = madvise(private + 2 * PAGE, PAGE, MADV_FREE);
    expect(r == 0 || errno == EINVAL);
    private[2 * PAGE] = 'n';
    expect(private[2 * PAGE] == 'n');
    r = madvise(private, 4 * PAGE, MADV_POPULATE_WRITE);
    expect((r == 0 || errno == EINVAL) && private[2 * PAGE] == 'n' && private[0] == 0);
    fails(EINVAL, madvise(shared, PAGE, MADV_WIPEONFORK));
    fails(EINVAL, madvise(private + 1, PAGE, MADV_NORMAL));
    fails(EINVAL, madvise(private, PAGE, 77));
    expect(madvise(private, 0, MADV_DONTNEED) == 0);
    must(munmap(private + PAGE, PAGE));
    // Over a hole: all that is there, and an error.
    fails(ENOMEM, madvise(private, 3 * PAGE, MADV_DONTNEED));
    expect(private[2 * PAGE] == 0);
    say("at 0x%lx\n", (unsigned long)private);
}
