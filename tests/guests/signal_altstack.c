// An alternative stack: the handler of a stack overflow runs there, and jumps out; more than once.
// variant: static -static
#include "guest.h"

static sigjmp_buf back;
static char *alternative;
static volatile uintptr_t fault_address;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    char here;
    expect(number == SIGSEGV && &here > alternative && &here < alternative + 65536);
    stack_t now;
    must(sigaltstack(NULL, &now));
    expect(now.ss_flags & SS_ONSTACK);
    fails(EPERM, sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    fault_address = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

__attribute__((noinline)) static int overflow(volatile int *depth) {
    volatile char frame[512];
    frame[0] = (char)*depth;
    ++*depth;
    if (*depth < 0) return 0;
    return overflow(depth) + frame[0];
}

static void *body(void *unused) {
    (void)unused;
    // Every thread has its own alternative stack, or none.
    stack_t now;
    must(sigaltstack(NULL, &now));
    expect(now.ss_flags == SS_DISABLE);
    return NULL;
}

int main(void) {
    alternative = (char *)malloc(65536);
    stack_t stack = {.ss_sp = alternative, .ss_size = 65536}, old;
    must(sigaltstack(&stack, &old));
    expect(old.ss_flags == SS_DISABLE);
    fails(ENOMEM, sigaltstack(&(stack_t){.ss_sp = alternative, .ss_size = 100}, NULL));
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    must(sigaction(SIGSEGV, &action, NULL));
    volatile int depth;
    for (int i = 0; i < 3; i++) {
        depth = 0;
        if (sigsetjmp(back, 1) == 0) overflow(&depth);
        expect(depth > 1000);
        say("overflow at depth %d, address 0x%lx\n", depth, (unsigned long)fault_address);
    }
    must(sigaltstack(NULL, &old));
    expect(old.ss_sp == alternative && old.ss_flags == 0 && old.ss_size == 65536);
    finish(start(body, NULL));
}
