// What a fault says of its cause: codes and addresses of SIGSEGV, SIGBUS, SIGFPE (integers, x87 and SSE), SIGILL and SIGTRAP.
// flags: -frounding-math
// libraries: -lm
#include "guest.h"
#include <fenv.h>
#include <sys/wait.h>
#include <ucontext.h>

static sigjmp_buf away;
static volatile int number_of, code_of, traps;
static char *volatile address_of;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    number_of = number;
    code_of = info->si_code;
    address_of = info->si_addr;
    siglongjmp(away, 1);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    ucontext_t *u = (ucontext_t *)context;
    traps++;
    code_of = info->si_code;
    address_of = (char *)u->uc_mcontext.gregs[REG_RIP];
    // No more single steps.
    u->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
}

#define FAULTS(what, number, code, statement)                                                                          \
    do {                                                                                                               \
        number_of = code_of = 0;                                                                                       \
        if (sigsetjmp(away, 1) == 0) {                                                                                 \
            statement;                                                                                                 \
            say("%s: no fault\n", what);                                                                               \
            _exit(GUEST_FAILED);                                                                                       \
        }                                                                                                              \
        say("%s: signal %d, code %d\n", what, number_of, code_of);                                                     \
        expect(number_of == (number) && code_of == (code));                                                            \
    } while (0)

static volatile double zero = 0, one = 1, huge = 1e308, tiny = 1e-308, result;
static volatile int none = 0, lowest = INT_MIN, minus = -1, quotient;

// The exceptions of one kind lead to a signal: in SSE and in the x87.
static void unmask(int exceptions) {
    feclearexcept(FE_ALL_EXCEPT);
    expect(feenableexcept(exceptions) != -1);
}

static void x87_divide(void) {
    // The fault comes with the next x87 instruction.
    __asm__ volatile("fld1\n fldz\n fdivrp %%st, %%st(1)\n fwait\n fstp %%st(0)\n" ::: "memory");
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (int i = 0; i < 4; i++) must(sigaction(numbers[i], &action, NULL));
    char *page = must(mmap(NULL, 2 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    FAULTS("nothing there", SIGSEGV, SEGV_MAPERR, *(volatile char *)8 = 1);
    expect(address_of == (char *)8);
    FAULTS("read only", SIGSEGV, SEGV_ACCERR, *(volatile char *)(page + 77) = 1);
    expect(address_of == page + 77);
    FAULTS("no code", SIGSEGV, SEGV_ACCERR, ((void (*)(void))(page + 5))());
    expect(address_of == page + 5);
    FAULTS("a call of nothing", SIGSEGV, SEGV_MAPERR, ((void (*)(void))16)());
    expect(address_of == (char *)16);
    FAULTS("not canonical", SIGSEGV, SI_KERNEL, *(volatile char *)0x7000000000000000 = 1);
    expect(address_of == NULL);
    FAULTS("a privileged instruction", SIGSEGV, SI_KERNEL, __asm__ volatile("hlt"));
    FAULTS("a privileged port", SIGSEGV, SI_KERNEL, __asm__ volatile("outb %%al, $0x80" ::: "memory"));
    FAULTS("an interrupt of the kernel", SIGSEGV, SI_KERNEL, __asm__ volatile("int $0x30"));
    FAULTS("not aligned for SSE", SIGSEGV, SI_KERNEL, __asm__ volatile("movaps (%0), %%xmm0" ::"r"(page + 1) : "xmm0"));

    int file = must(memfd_create("short", 0));
    must(ftruncate(file, 100));
    char *mapped = must(mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    mapped[4095] = 1;
    FAULTS("behind the end of a file", SIGBUS, BUS_ADRERR, mapped[4096 + 3] = 1);
    expect(address_of == mapped + 4096 + 3);
    must(ftruncate(file, 0));
    FAULTS("a file cut short", SIGBUS, BUS_ADRERR, (void)*(volatile char *)mapped);

    FAULTS("an integer by zero", SIGFPE, FPE_INTDIV, quotient = lowest / none);
    FAULTS("the lowest by minus one", SIGFPE, FPE_INTDIV, quotient = lowest / minus);
    unmask(FE_DIVBYZERO);
    FAULTS("SSE by zero", SIGFPE, FPE_FLTDIV, result = one / zero);
    unmask(FE_OVERFLOW);
    FAULTS("SSE overflow", SIGFPE, FPE_FLTOVF, result = huge * huge);
    unmask(FE_UNDERFLOW);
    FAULTS("SSE underflow", SIGFPE, FPE_FLTUND, result = tiny * tiny);
    unmask(FE_INVALID);
    FAULTS("SSE invalid", SIGFPE, FPE_FLTINV, result = zero / zero);
    unmask(FE_INEXACT);
    FAULTS("SSE inexact", SIGFPE, FPE_FLTRES, result = one / 3);
    unmask(FE_DIVBYZERO);
    FAULTS("x87 by zero", SIGFPE, FPE_FLTDIV, x87_divide());
    // The handler began with a fresh environment, and after the jump it is still the handler's: nothing faults.
    expect(fedisableexcept(FE_ALL_EXCEPT) == 0);
    feclearexcept(FE_ALL_EXCEPT);
    result = one / zero;

    FAULTS("no instruction", SIGILL, ILL_ILLOPN, __asm__ volatile("ud2"));
    action.sa_sigaction = on_trap;
    must(sigaction(SIGTRAP, &action, NULL));
    __asm__ volatile("int3\n1:" ::: "memory");
    expect(traps == 1 && code_of == SI_KERNEL);
    say("a breakpoint: code %d\n", code_of);
    // One single step.
    __asm__ volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n nop\n add $128, %%rsp" ::: "memory", "cc");
    expect(traps == 2 && code_of == TRAP_TRACE);
    say("a single step: code %d\n", code_of);

    // Blocked or ignored, a fault of one's own still kills.
    for (int i = 0; i < 2; i++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            sigset_t set;
            sigfillset(&set);
            if (i) signal(SIGFPE, SIG_IGN);
            else ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
            quotient = lowest / none;
            _exit(GUEST_FAILED);
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE);
    }
    // Sent by hand, it is a signal like any other.
    signal(SIGFPE, SIG_IGN);
    must(raise(SIGFPE));
    say("done\n");
}
