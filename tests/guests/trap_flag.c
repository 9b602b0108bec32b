// A program that sets the trap flag gets a SIGTRAP after each instruction; its system calls are one to it.
#include "guest.h"
#include <ucontext.h>

static volatile sig_atomic_t traps, inside_code;
static long first, behind;

static void trap(int signal, siginfo_t *info, void *context) {
    expect(signal == SIGTRAP && info->si_code == TRAP_TRACE);
    long at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    traps++;
    // Nothing is shown but the program's own code.
    if (at >= first && at <= behind) inside_code++;
}

__attribute__((noinline)) static long stepped(long rounds) {
    long result;
    __asm__ volatile("lea 1f(%%rip), %%rax\n mov %%rax, %1\n lea 3f(%%rip), %%rax\n mov %%rax, %2\n"
                     "pushfq\n orq $0x100, (%%rsp)\n popfq\n"
                     "1: nop\n nop\n"
                     "2: mov $110, %%eax\n syscall\n nop\n nop\n dec %3\n jnz 2b\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n"
                     "3: nop\n"
                     : "=&a"(result), "=m"(first), "=m"(behind), "+r"(rounds)
                     :
                     : "rcx", "r11", "memory", "cc");
    return result;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGTRAP, &action, NULL));
    long rounds = number(argc, argv, 1, 40);
    expect(stepped(rounds) == getppid());
    // Whether a trap follows the system call at once is the kernel's business, and where the call's site is rewritten the mov before it is a part of
    // it; each other instruction has a trap.
    expect(traps == inside_code);
    expect(traps >= 4 * rounds && traps <= 6 * rounds + 8);
    say("%d traps\n", traps);
}
