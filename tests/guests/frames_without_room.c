// A signal whose frame can't be pushed is a SIGSEGV, whose handler may have another stack; so is a frame that can't be read when a handler returns, and
// one that would not fit onto the alternate stack. Without such a handler, or while SIGSEGV is blocked, the process ends.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static char *no_stack;
static sigjmp_buf back;
static volatile sig_atomic_t faults, seen;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    expect(signal == SIGSEGV && info->si_code == SI_KERNEL);
    char here;
    stack_t stack;
    must(sigaltstack(NULL, &stack));
    expect(stack.ss_flags == SS_ONSTACK && &here > (char *)stack.ss_sp && &here < (char *)stack.ss_sp + stack.ss_size);
    faults++;
    siglongjmp(back, 1);
}

static void never(int signal) {
    (void)signal;
    seen++;
}

// Signal with a stack pointer behind which there is no memory.
static void signal_without_stack(int signal) {
    long pid = getpid(), tid = gettid_raw(), result;
    __asm__ volatile("mov %%rsp, %%rbx\n mov %2, %%rsp\n syscall\n mov %%rbx, %%rsp"
                     : "=a"(result)
                     : "0"((long)SYS_tgkill), "r"(no_stack), "D"(pid), "S"(tid), "d"((long)signal)
                     : "rbx", "rcx", "r11", "memory");
}

static void return_from_nowhere(void) {
    __asm__ volatile("mov %1, %%rsp\n syscall" : : "a"((long)SYS_rt_sigreturn), "r"(no_stack) : "rcx", "r11", "memory");
    __builtin_unreachable();
}

static void in_child(void (*body)(void), int wanted) {
    pid_t pid = must(fork());
    if (pid == 0) {
        struct rlimit none = {0, 0};
        must(setrlimit(RLIMIT_CORE, &none));
        body();
        _exit(GUEST_FAILED);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == wanted);
}

static void without_handler(void) {
    expect(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
    signal_without_stack(SIGUSR1);
}

static void while_blocked(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGSEGV);
    must(sigprocmask(SIG_BLOCK, &one, NULL));
    signal_without_stack(SIGUSR1);
}

static void without_other_stack(void) {
    stack_t none = {.ss_flags = SS_DISABLE};
    must(sigaltstack(&none, NULL));
    signal_without_stack(SIGUSR1);
}

int main(void) {
    no_stack = (char *)must(mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + (1 << 15);
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    must(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    must(sigaction(SIGSEGV, &action, NULL));
    struct sigaction other = {.sa_handler = never};
    must(sigaction(SIGUSR1, &other, NULL));
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            signal_without_stack(SIGUSR1);
            expect(false);
        }
    }
    expect(faults == 3 && seen == 0);
    if (sigsetjmp(back, 1) == 0) return_from_nowhere();
    expect(faults == 4);
    in_child(without_handler, SIGSEGV);
    in_child(while_blocked, SIGSEGV);
    in_child(without_other_stack, SIGSEGV);
    say("%d faults\n", faults);
}
