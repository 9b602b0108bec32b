// A handler sends the interrupted thread elsewhere: it changes RIP, and with it the state of a loop that would never end.
#include "guest.h"

static volatile uint64_t stopped_at;
extern char loop_start[], loop_end[];

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    ucontext_t *u = (ucontext_t *)context;
    greg_t rip = u->uc_mcontext.gregs[REG_RIP];
    if (rip >= (greg_t)loop_start && rip < (greg_t)loop_end) {
        stopped_at = u->uc_mcontext.gregs[REG_RAX];
        u->uc_mcontext.gregs[REG_RIP] = (greg_t)loop_end;
        u->uc_mcontext.gregs[REG_RAX] = 1;
    }
}

__attribute__((noinline)) static uint64_t forever(uint64_t start) {
    uint64_t result = start;
    __asm__ volatile(
        ".globl loop_start, loop_end\n"
        "loop_start:\n"
        "add $3, %%rax\n"
        "jmp loop_start\n"
        "loop_end:\n"
        : "+a"(result));
    return result;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerval every = {.it_interval.tv_usec = 2000, .it_value.tv_usec = 2000};
    must(setitimer(ITIMER_REAL, &every, NULL));
    for (int i = 0; i < 5; i++) {
        expect(forever(i) == 1);
        expect(stopped_at % 3 == (uint64_t)i % 3);
        say("left the loop at %lu\n", stopped_at);
    }
}
