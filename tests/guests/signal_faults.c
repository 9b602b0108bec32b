// Faults that a handler repairs: write protection lifted, instructions skipped, registers changed, divisions given another divisor.
// variant: O0 -O0
// variant: static -static
#include "guest.h"

static char *pages;
static volatile int faults, skips, divisions, traps;
static volatile long last_code, last_error;

static void on_segv(int number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    expect(number == SIGSEGV);
    faults++;
    last_code = info->si_code;
    last_error = u->uc_mcontext.gregs[REG_ERR];
    char *at = (char *)((uintptr_t)info->si_addr & ~4095ul);
    if (at >= pages && at < pages + 16 * 4096) {
        expect(info->si_code == SEGV_ACCERR && u->uc_mcontext.gregs[REG_TRAPNO] == 14);
        must(mprotect(at, 4096, PROT_READ | PROT_WRITE));
        return;
    }
    // A load from nowhere: `mov (%rdi), %eax`, two bytes; give it a value.
    expect((uintptr_t)info->si_addr == 0x10 && info->si_code == SEGV_MAPERR);
    u->uc_mcontext.gregs[REG_RAX] = 4711;
    u->uc_mcontext.gregs[REG_RIP] += 2;
}

static void on_ill(int number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    expect(number == SIGILL && (greg_t)info->si_addr == u->uc_mcontext.gregs[REG_RIP]);
    u->uc_mcontext.gregs[REG_RIP] += 2;
    // The vector registers of the interrupted code can be changed, too.
    u->uc_mcontext.fpregs->_xmm[3].element[0] = 0x1234;
    skips++;
}

static void on_fpe(int number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    expect(number == SIGFPE && info->si_code == FPE_INTDIV);
    u->uc_mcontext.gregs[REG_RCX] = 7;
    divisions++;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    expect(number == SIGTRAP);
    traps++;
}

static int load_from_nowhere(void) {
    int value;
    __asm__ volatile("mov $0x10, %%edi\n mov (%%rdi), %%eax\n" : "=a"(value) : : "rdi", "memory");
    return value;
}

static int illegal(void) {
    int value;
    __asm__ volatile("pxor %%xmm3, %%xmm3\n ud2\n movd %%xmm3, %0\n" : "=r"(value) : : "xmm3");
    return value;
}

static int divide(void) {
    int quotient;
    __asm__ volatile("mov $77, %%eax\n xor %%edx, %%edx\n xor %%ecx, %%ecx\n div %%ecx\n" : "=a"(quotient) : : "ecx", "edx");
    return quotient;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL));
    action.sa_sigaction = on_ill;
    must(sigaction(SIGILL, &action, NULL));
    action.sa_sigaction = on_fpe;
    must(sigaction(SIGFPE, &action, NULL));
    action.sa_sigaction = on_trap;
    must(sigaction(SIGTRAP, &action, NULL));
    pages = (char *)must(mmap(NULL, 16 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 16; i++) pages[i * 4096 + round] = (char)i;
        must(mprotect(pages, 16 * 4096, round % 2 ? PROT_NONE : PROT_READ));
    }
    expect(faults == 160);
    for (int i = 0; i < 20; i++) {
        expect(load_from_nowhere() == 4711);
        expect(illegal() == 0x1234);
        expect(divide() == 11);
        __asm__ volatile("int3");
    }
    expect(faults == 180 && skips == 20 && divisions == 20 && traps == 20);
    say("last code %ld, error %ld, pages at 0x%lx\n", last_code, last_error, (unsigned long)pages);
}
