// Instructions that change memory in one step and fault: the handler sees the instruction's own address and flags, repairs what is wrong,
// and the instruction is made again; or the handler leaves by longjmp. Other threads use the same shards meanwhile.
// run: 200 => SIGSEGV
#include "guest.h"

extern char faulting[], jumping[];
static uint64_t *page;
static uint64_t counter;
static sigjmp_buf back;
static volatile long repaired, left;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ucontext_t *c = context;
    char *pc = (char *)c->uc_mcontext.gregs[REG_RIP];
    if (pc == jumping) {
        left++;
        siglongjmp(back, 1);
    }
    expect(pc == faulting && info->si_addr == page);
    // What the flags were before: carry and zero.
    expect((c->uc_mcontext.gregs[REG_EFL] & 0x41) == 0x41);
    expect(c->uc_mcontext.gregs[REG_RAX] == 7 && c->uc_mcontext.gregs[REG_RCX] == 8 && c->uc_mcontext.gregs[REG_RDX] == 9);
    must(mprotect(page, 4096, PROT_READ | PROT_WRITE));
    repaired++;
}

static void *neighbour(void *p) {
    uint64_t hash = 0;
    for (long i = 0; i < *(long *)p * 20; i++) {
        uint64_t v = i;
        __asm__ volatile("lock xadd %0, %1" : "+r"(v), "+m"(counter) : : "cc");
        hash = mix(hash + v);
    }
    return (void *)hash;
}

__attribute__((noinline)) static uint64_t fault_once(void) {
    uint64_t a = 7, c = 8, d = 9;
    __asm__ volatile("xor %%esi, %%esi\n\tstc\n\t"
                     ".globl faulting\nfaulting:\tlock xadd %%rax, (%%rdi)\n\tmov %%rax, %%rax"
                     : "+a"(a), "+c"(c), "+d"(d)
                     : "D"(page)
                     : "rsi", "cc", "memory");
    expect(c == 8 && d == 9);
    return a;
}

__attribute__((noinline)) static void fault_and_leave(void) {
    if (sigsetjmp(back, 1)) return;
    __asm__ volatile(".globl jumping\njumping:\tlock incq (%0)\n\tnop\n\tnop" : : "r"(page) : "cc", "memory");
    expect(0);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 200);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(page != MAP_FAILED);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL));
    pthread_t thread = start(neighbour, &rounds);
    uint64_t hash = 0;
    for (long i = 0; i < rounds; i++) {
        must(mprotect(page, 4096, PROT_NONE));
        expect(fault_once() == (uint64_t)i * 7);
        must(mprotect(page, 4096, PROT_READ));
        fault_and_leave();
        must(mprotect(page, 4096, PROT_READ | PROT_WRITE));
        uint64_t v = 1;
        __asm__ volatile("lock xadd %0, %1" : "+r"(v), "+m"(counter) : : "cc");
        hash = mix(hash + v);
    }
    expect(repaired == rounds && left == rounds);
    say("here %lu, there %lu\n", (unsigned long)hash, (unsigned long)(uintptr_t)finish(thread));
    // At last a fault for good.
    must(signal(SIGSEGV, SIG_DFL) == SIG_ERR ? -1 : 0);
    __asm__ volatile("lock incq (%0)" : : "r"(8L) : "cc", "memory");
}
