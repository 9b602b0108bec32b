// Files mapped into memory: private and shared, two views of the same file, written by hand and by system call, and beyond the end.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

enum { PAGE = 4096 };
static sigjmp_buf back;
static siginfo_t fault;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    fault = *info;
    siglongjmp(back, 1);
}

int main(void) {
    char name[] = "mapXXXXXX";
    int fd = must(mkstemp(name));
    char block[PAGE];
    for (int i = 0; i < 3; i++) {
        memset(block, '1' + i, PAGE);
        expect(write(fd, block, PAGE) == PAGE);
    }
    must(ftruncate(fd, 2 * PAGE + 100));
    char *private = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    char *shared = (char *)must(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *second = (char *)must(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE));
    expect(private[0] == '1' && shared[PAGE] == '2' && second[0] == '2' && shared[2 * PAGE + 99] == '3' && shared[2 * PAGE + 100] == 0);
    shared[PAGE] = 'S';
    expect(second[0] == 'S' && private[PAGE] == 'S');
    private[0] = 'P';
    expect(shared[0] == '1');
    expect(pread(fd, block, 1, PAGE) == 1 && block[0] == 'S');
    expect(pwrite(fd, "W", 1, PAGE + 1) == 1);
    expect(shared[PAGE + 1] == 'W' && second[1] == 'W');
    // A read of the file into its own mapping.
    must(lseek(fd, PAGE, SEEK_SET));
    expect(read(fd, shared, 2) == 2 && shared[0] == 'S' && shared[1] == 'W');
    must(msync(shared, 3 * PAGE, MS_SYNC));
    must(madvise(private, PAGE, MADV_DONTNEED));
    expect(private[0] == 'S');

    // Beyond the end of the file there is nothing: SIGBUS, which a program may survive.
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGBUS, &action, NULL));
    must(ftruncate(fd, PAGE));
    if (sigsetjmp(back, 1) == 0) {
        say("beyond the end: %d\n", *(volatile char *)(shared + PAGE));
        expect(false);
    }
    expect(fault.si_signo == SIGBUS && fault.si_code == BUS_ADRERR && fault.si_addr == shared + PAGE);
    must(ftruncate(fd, 3 * PAGE));
    expect(shared[PAGE] == 0);
    must(close(fd));
    must(unlink(name));
    shared[2 * PAGE] = 'x';
    expect(shared[2 * PAGE] == 'x');
    say("at 0x%lx, 0x%lx, 0x%lx\n", (unsigned long)private, (unsigned long)shared, (unsigned long)second);

    // The same memory twice, as language runtimes do with memfd.
    int memory = must(memfd_create("views", 0));
    must(ftruncate(memory, 4 * PAGE));
    uint64_t *a = (uint64_t *)must(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    uint64_t *b = (uint64_t *)must(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    a[100] = now_ns(CLOCK_MONOTONIC);
    expect(b[100] == a[100]);
    // The first page again behind the last one: a ring that needs no end.
    uint64_t *ring = (uint64_t *)must(mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(mmap(ring, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0));
    must(mmap((char *)ring + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0));
    ring[0] = 5;
    expect(ring[PAGE / 8] == 5 && a[0] == 5);
    say("stored at %lu\n", a[100]);
    // The program's own file, as data.
    int self = must(open("/proc/self/exe", O_RDONLY));
    struct stat st;
    must(fstat(self, &st));
    const char *image = (const char *)must(mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, self, 0));
    expect(memcmp(image, "\177ELF", 4) == 0);
    say("own image of %ld bytes, hash %lu\n", st.st_size, hash_bytes(image, st.st_size));
}
