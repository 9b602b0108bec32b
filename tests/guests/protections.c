// Memory that may not be touched: what the fault says of address and reason, and going on after it.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
static sigjmp_buf back;
static siginfo_t fault;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    fault = *info;
    siglongjmp(back, 1);
}

static char *memory;

#define TOUCH(what, code)                                                                                              \
    do {                                                                                                               \
        if (sigsetjmp(back, 1) == 0) {                                                                                 \
            code;                                                                                                      \
            say("%s: fine\n", what);                                                                                   \
        } else {                                                                                                       \
            say("%s: signal %d code %d page %ld\n", what, fault.si_signo, fault.si_code, fault.si_code == SI_KERNEL ? 0 : ((char *)fault.si_addr - memory) >> 12); \
        }                                                                                                              \
    } while (0)

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL));
    must(sigaction(SIGBUS, &action, NULL));
    memory = (char *)must(mmap(NULL, 16 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 16; i++) memory[i << 12] = (char)i;
    volatile char *page = memory;
    must(mprotect(memory + (1 << 12), 1 << 12, PROT_READ));
    must(mprotect(memory + (2 << 12), 1 << 12, PROT_NONE));
    must(munmap(memory + (3 << 12), 1 << 12));
    TOUCH("read page 1", (void)page[1 << 12]);
    TOUCH("write page 1", page[1 << 12] = 1);
    TOUCH("read page 2", (void)page[2 << 12]);
    TOUCH("read page 3", (void)page[3 << 12]);
    TOUCH("run page 4", ((void (*)(void))(memory + (4 << 12)))());
    must(mprotect(memory + (2 << 12), 1 << 12, PROT_READ | PROT_WRITE));
    TOUCH("read page 2", expect(page[2 << 12] == 2));
    must(madvise(memory + (5 << 12), 1 << 12, MADV_DONTNEED));
    TOUCH("read page 5", expect(page[5 << 12] == 0));
    tell(madvise(memory, 1 << 12, 9999));
    tell(madvise(memory + 1, 1 << 12, MADV_DONTNEED));
    tell(mprotect(memory + 1, 1 << 12, PROT_READ));
    tell(mprotect(memory, 16 << 12, PROT_READ));
    TOUCH("write page 15", page[15 << 12] = 1);
    TOUCH("write page 2", page[2 << 12] = 1);
    char *moved = (char *)must(mremap(memory + (8 << 12), 4 << 12, 8 << 12, MREMAP_MAYMOVE));
    expect(moved[1 << 12] == 9 && moved[5 << 12] == 0);
    TOUCH("read page 8", (void)page[8 << 12]);
    TOUCH("not canonical", (void)*(volatile char *)0x8000000000000000ul);
    tell(mremap(moved, 8 << 12, 8 << 12, MREMAP_FIXED));
    tell(mremap(moved + 1, 8 << 12, 8 << 12, 0));
    tell(mremap(moved, 8 << 12, 0, 0));
    char *shrunk = (char *)must(mremap(moved, 8 << 12, 1 << 12, 0));
    expect(shrunk == moved);
    int words[4] = {1, 2, 3, 4};
    say("%d\n", words[number(1, NULL, 1, 2)]);
}
