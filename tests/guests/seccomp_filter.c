// A program's own seccomp filters: errors, traps with their details, arguments, addresses; stacked ones; bad ones.
#include "filters.h"
#include <ucontext.h>

static volatile int traps;
static void *volatile last_address;
static volatile int last_call, last_errno, last_code;
static volatile unsigned last_arch;
static volatile long last_rax;

static void on_trap(int number, siginfo_t *info, void *context) {
    expect(number == SIGSYS);
    ucontext_t *u = context;
    traps++;
    last_address = info->si_call_addr;
    last_call = info->si_syscall;
    last_errno = info->si_errno;
    last_code = info->si_code;
    last_arch = info->si_arch;
    last_rax = u->uc_mcontext.gregs[REG_RAX];
    // The handler makes the call's result.
    u->uc_mcontext.gregs[REG_RAX] = 4242;
}

static void errors(void) {
    FILTER(filter, NUMBER, ON(SYS_getppid, SECCOMP_RET_ERRNO | 77), ON(SYS_uname, SECCOMP_RET_ERRNO | 0),
           ON(SYS_getsid, SECCOMP_RET_LOG), ON(SYS_getpriority, SECCOMP_RET_TRACE | 3),
           ON(SYS_umask, SECCOMP_RET_ERRNO | 0xffff), ON(SYS_getpgrp, SECCOMP_RET_TRAP | 5), RETURN(SECCOMP_RET_ALLOW));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    expect(prctl(PR_GET_SECCOMP) == 2);
    fails(77, syscall(SYS_getppid));
    expect(syscall(SYS_uname, NULL) == 0);
    must(getsid(0));
    fails(ENOSYS, syscall(SYS_getpriority, 0, 0));
    fails(4095, syscall(SYS_umask, 022));
    // Often enough for the site to be rewritten.
    for (int i = 0; i < 20; i++) {
        expect(syscall(SYS_getpgrp) == 4242);
        expect(traps == i + 1 && last_call == SYS_getpgrp && last_errno == 5 && last_code == 1);
        expect(last_arch == AUDIT_ARCH_X86_64 && last_rax == SYS_getpgrp && last_address != NULL);
    }
}

static long here(void) {
    long r;
    __asm__ volatile("mov $102, %%eax\n\tsyscall\n\t.globl behind_call\nbehind_call:" : "=a"(r) : : "rcx", "r11", "memory");
    return r;
}
extern char behind_call[];

// By the address of the call: the same number is an error at one place and fine elsewhere.
static void addresses(void) {
    unsigned low = (unsigned)(uintptr_t)behind_call;
    FILTER(filter, NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getuid, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)), ON(low, SECCOMP_RET_ERRNO | 5),
           RETURN(SECCOMP_RET_ALLOW));
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    for (int i = 0; i < 10; i++) {
        expect(here() == -5);
        must(syscall(SYS_getuid));
    }
}

static void arguments(void) {
    FILTER(filter, NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 4), ARGUMENT(1),
           BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 100, 1, 0), RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_ERRNO | 33),
           RETURN(SECCOMP_RET_ALLOW));
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    int fd = must(open("/proc/self/exe", O_RDONLY));
    expect(lseek(fd, 100, SEEK_SET) == 100);
    fails(33, lseek(fd, 101, SEEK_SET));
    must(close(fd));
}

// Of several filters the strictest answer counts, and of two that are as strict the newer one's.
static void stacked(void) {
    FILTER(newer, NUMBER, ON(SYS_getppid, SECCOMP_RET_ERRNO | 78), ON(SYS_uname, SECCOMP_RET_TRAP | 9),
           ON(SYS_getpgrp, SECCOMP_RET_ERRNO | 3), RETURN(SECCOMP_RET_ALLOW));
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &newer));
    fails(78, syscall(SYS_getppid));
    int before = traps;
    expect(syscall(SYS_uname, NULL) == 4242 && traps == before + 1 && last_errno == 9);
    expect(syscall(SYS_getpgrp) == 4242 && last_errno == 5);
}

static void bad(void) {
    FILTER(nothing, NUMBER);
    fails(EINVAL, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &nothing));
    struct sock_fprog empty = {0};
    fails(EINVAL, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &empty));
    struct sock_fprog wild = {.len = 4, .filter = (struct sock_filter *)16};
    fails(EFAULT, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &wild));
    fails(EFAULT, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 8));
    fails(EINVAL, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1 << 20, &nothing));
    fails(EINVAL, syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    // Strict mode comes too late.
    fails(EINVAL, prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    fails(EINVAL, prctl(PR_SET_SECCOMP, 7));
    unsigned action = SECCOMP_RET_TRAP;
    must(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    action = 0x12345678;
    fails(EOPNOTSUPP, syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
}

// A filter that lists what is allowed: clocks are read without a call, so they need not be in it.
static void listed(void) {
    FILTER(filter, NUMBER, ON(SYS_write, SECCOMP_RET_ALLOW), ON(SYS_exit_group, SECCOMP_RET_ALLOW),
           ON(SYS_rt_sigreturn, SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_ERRNO | ENOANO));
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    for (int i = 0; i < 10; i++) {
        say("now %ld\n", now_ns(CLOCK_MONOTONIC));
        fails(ENOANO, getppid() == 0 ? -1 : syscall(SYS_getegid));
    }
    fails(ENOANO, open("/dev/null", O_RDONLY));
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSYS, &action, NULL));
    say("mode %d\n", prctl(PR_GET_SECCOMP) >= 0);
    no_new_privileges();
    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    errors();
    addresses();
    arguments();
    stacked();
    bad();
    listed();
    say("%d traps\n", traps);
}
