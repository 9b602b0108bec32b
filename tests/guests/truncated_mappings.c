// A mapped file shrinks and grows under its mappings: what was cut off is gone, what comes is zero, copied pages of a private mapping go too.
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

// -1: SIGBUS.
static int peek(const char *at) {
    if (sigsetjmp(back, 1) != 0) {
        expect(fault.si_signo == SIGBUS && fault.si_code == BUS_ADRERR && fault.si_addr == (void *)at);
        return -1;
    }
    return *(const volatile char *)at;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGBUS, &action, NULL));
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    static char bytes[4 * PAGE];
    for (int i = 0; i < 4; i++) memset(bytes + i * PAGE, 'a' + i, PAGE);
    expect(write(fd, bytes, sizeof bytes) == sizeof bytes);
    char *shared = (char *)must(mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *private = (char *)must(mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    expect(peek(shared + 4 * PAGE) == -1 && peek(private + 5 * PAGE) == -1);
    private[2 * PAGE] = 'P';
    private[0] = 'P';
    must(ftruncate(fd, PAGE + 100));
    expect(peek(shared + PAGE + 99) == 'b' && peek(shared + PAGE + 100) == 0 && peek(shared + 2 * PAGE) == -1);
    // The page that the program had copied is gone with the file's.
    expect(peek(private) == 'P' && peek(private + 2 * PAGE) == -1);
    must(truncate("file", 5 * PAGE));
    expect(peek(shared + 2 * PAGE) == 0 && peek(private + 2 * PAGE) == 0 && peek(shared + 4 * PAGE) == 0 && peek(shared + 5 * PAGE) == -1);
    shared[4 * PAGE + 7] = 'x';
    expect(pread(fd, bytes, PAGE, 4 * PAGE) == PAGE && bytes[7] == 'x' && bytes[8] == 0);
    must(close(must(open("file", O_RDWR | O_TRUNC))));
    expect(peek(shared) == -1 && peek(private) == -1);
    // A system call meets the end as an error.
    int tube[2];
    must(pipe(tube));
    fails(EFAULT, write(tube[1], shared, 10));
    must(ftruncate(fd, PAGE));
    fails(EFAULT, write(tube[1], shared + PAGE, 10));
    expect(write(tube[1], shared + PAGE - 10, 10) == 10);
    say("inode of %d survives\n", fd);
}
