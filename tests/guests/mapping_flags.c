// Flags of mmap that ask for something special: validated ones, huge pages, locked or populated, places; and combinations that are none.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

enum { PAGE = 4096, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), reader = must(open("file", O_RDONLY)), writer = must(open("file", O_WRONLY));
    must(ftruncate(fd, 4 * PAGE));
    char *p = (char *)must(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, fd, PAGE));
    strcpy(p, "validated");
    char text[16];
    expect(pread(fd, text, 10, PAGE) == 10 && strcmp(text, "validated") == 0);
    // Unknown flags are looked at, or not.
    fails(EOPNOTSUPP, mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 1 << 21, fd, 0));
    fails(EOPNOTSUPP, mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
    fails(EINVAL, mmap(NULL, PAGE, PROT_READ, 0, fd, 0));
    fails(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 100));
    fails(EINVAL, mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
    fails(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0));
    fails(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0));
    char *own = (char *)must(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0));
    own[0] = 'o';
    fails(EACCES, mprotect(must(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0)), PAGE, PROT_READ | PROT_WRITE));
    fails(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, must(open(".", O_RDONLY)), 0));
    int tube[2];
    must(pipe(tube));
    fails(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, tube[0], 0));
    fails(EOVERFLOW, syscall(SYS_mmap, NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0xfffffffffffff000ul));
    // Anonymous memory has no file, whatever is said of one.
    char *anonymous = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, ANON | MAP_POPULATE | MAP_STACK | MAP_NORESERVE, 77, 0));
    expect(anonymous[2 * PAGE] == 0);
    char *locked = (char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, ANON | MAP_LOCKED, -1, 0);
    expect(locked != MAP_FAILED ? locked[5] == 0 : errno == EAGAIN || errno == EPERM);
    char *huge = (char *)mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, ANON | MAP_HUGETLB, -1, 0);
    expect(huge != MAP_FAILED ? huge[5] == 0 : errno == ENOMEM || errno == EPERM || errno == EINVAL);
    // A hint is taken when there is room, and is no demand.
    must(munmap(anonymous + PAGE, PAGE));
    expect(mmap(anonymous + PAGE, PAGE, PROT_READ, ANON, -1, 0) == anonymous + PAGE);
    char *elsewhere = (char *)must(mmap(anonymous + 1, PAGE, PROT_READ, ANON, -1, 0));
    expect(elsewhere != anonymous && ((unsigned long)elsewhere & (PAGE - 1)) == 0);
    fails(EEXIST, mmap(anonymous, PAGE, PROT_READ, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    fails(EINVAL, mmap(anonymous + 1, PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0));
    fails(ENOMEM, mmap((void *)(1ul << 47), PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0));
    // Above what 47 bits can say, only where it is asked for, and only where there is such memory.
    fails(ENOMEM, mmap((void *)0x7ffffffff000, 2 * PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0));
    say("at 0x%lx, 0x%lx, locked %d, huge %d\n", (unsigned long)p, (unsigned long)elsewhere, locked != MAP_FAILED, huge != MAP_FAILED);
}
