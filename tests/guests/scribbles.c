// A hostile program: it uses gs, changes fs and back, leaves the direction flag set, moves its stack pointer away, and makes calls
// with every register full of rubbish.
#include "guest.h"
#include <asm/prctl.h>

__attribute__((noinline)) static long call_without_stack(long number, void *elsewhere) {
    long result;
    // The stack pointer points to memory that must not be touched by anybody.
    __asm__ volatile(
        "mov %%rsp, %%rbx\n"
        "mov %[elsewhere], %%rsp\n"
        "syscall\n"
        "mov %%rbx, %%rsp\n"
        : "=a"(result)
        : "a"(number), [elsewhere] "r"(elsewhere)
        : "rbx", "rcx", "r11", "memory");
    return result;
}

int main(void) {
    char *guarded = (char *)must(mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    long me = getpid();
    for (int i = 0; i < 100; i++) expect(call_without_stack(SYS_getpid, guarded + 4096) == me);
    for (int i = 0; i < 100; i++) expect(call_without_stack(SYS_getpid, (void *)8) == me);
    // fs and gs belong to the program, by their call.
    unsigned long fs = 0, gs = 0, seen = 0;
    expect(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0);
    expect(syscall(SYS_arch_prctl, ARCH_SET_FS, fs) == 0);
    expect(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0);
    unsigned long own[8] = {0x1234567};
    if (syscall(SYS_arch_prctl, ARCH_SET_GS, own) == 0) {
        expect(syscall(SYS_arch_prctl, ARCH_GET_GS, &seen) == 0 && seen == (unsigned long)own);
        unsigned long word;
        __asm__ volatile("mov %%gs:0, %0" : "=r"(word));
        expect(word == 0x1234567);
        expect(getppid() > 0 && now_ns(CLOCK_MONOTONIC) > 0);
        expect(syscall(SYS_arch_prctl, ARCH_SET_GS, gs) == 0);
    }
    // A call with the direction flag set.
    long result;
    __asm__ volatile("std\n syscall\n cld\n" : "=a"(result) : "a"(SYS_getpid) : "rcx", "r11", "memory", "cc");
    expect(result == me);
    // Arguments that mean nothing.
    expect(syscall(SYS_getpid, -1, -1, -1, -1, -1, -1) == me);
    fails(EFAULT, syscall(SYS_uname, guarded));
    fails(EFAULT, syscall(SYS_clock_gettime, CLOCK_REALTIME, (void *)0xdead000000000000ul));
    say("unharmed, fs 0x%lx\n", fs);
}
