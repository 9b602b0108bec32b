// A system call changes rax, rcx and r11 and nothing else: general and vector registers, flags, x87, MXCSR, the red zone. The
// same must hold for a site that is dispatched the first times and rewritten later.
// variant: O0 -O0
// run: 3000
#include "guest.h"

// The state set before and found after a call. Offsets are used by the assembly below.
struct state {
    uint64_t general[16];     // 0: rax rbx rcx rdx rsi rdi rbp - r8..r15
    uint8_t vector[16][16];   // 128
    uint64_t flags;           // 384
    uint64_t red_zone[16];    // 392
    uint64_t after;           // 520: the address behind the call
};

static struct state before, found;

__attribute__((noinline)) static void call_once(void) {
    __asm__ volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n"
        "lea %[before], %%rax\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu 128+\\n*16(%%rax), %%xmm\\n\n .endr\n"
        // The red zone, from the top down.
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n mov 392+\\n*8(%%rax), %%rcx\n mov %%rcx, -8-\\n*8(%%rsp)\n .endr\n"
        "mov 8(%%rax), %%rbx\n mov 24(%%rax), %%rdx\n mov 32(%%rax), %%rsi\n mov 40(%%rax), %%rdi\n mov 48(%%rax), %%rbp\n"
        "mov 64(%%rax), %%r8\n mov 72(%%rax), %%r9\n mov 80(%%rax), %%r10\n mov 96(%%rax), %%r12\n"
        "mov 104(%%rax), %%r13\n mov 112(%%rax), %%r14\n mov 120(%%rax), %%r15\n"
        "cmpq $0, 120(%%rax)\n"
        "stc\n"
        "mov $110, %%eax\n" // getppid
        "syscall\n"
        "1: mov %%rax, %[found]\n"
        "lea %[found], %%rax\n"
        "mov %%rbx, 8(%%rax)\n mov %%rcx, 16(%%rax)\n mov %%rdx, 24(%%rax)\n mov %%rsi, 32(%%rax)\n mov %%rdi, 40(%%rax)\n mov %%rbp, 48(%%rax)\n"
        "mov %%r8, 64(%%rax)\n mov %%r9, 72(%%rax)\n mov %%r10, 80(%%rax)\n mov %%r11, 88(%%rax)\n mov %%r12, 96(%%rax)\n"
        "mov %%r13, 104(%%rax)\n mov %%r14, 112(%%rax)\n mov %%r15, 120(%%rax)\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n mov -8-\\n*8(%%rsp), %%rcx\n mov %%rcx, 392+\\n*8(%%rax)\n .endr\n"
        "pushf\n pop %%rcx\n mov %%rcx, 384(%%rax)\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu %%xmm\\n, 128+\\n*16(%%rax)\n .endr\n"
        "lea 1b(%%rip), %%rcx\n mov %%rcx, 520(%%rax)\n"
        "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : [found] "=m"(found)
        : [before] "m"(before)
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
          "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// The upper halves of the vector registers survive a call, too.
__attribute__((noinline, target("avx"))) static void upper_halves(uint64_t seed) {
    uint64_t in[4] = {seed, mix(seed), mix(seed + 1), mix(seed + 2)}, out[4];
    long result;
    __asm__ volatile(
        "vmovdqu (%[in]), %%ymm5\n vmovdqu (%[in]), %%ymm15\n"
        "mov $39, %%eax\n syscall\n"
        "vpxor %%xmm4, %%xmm4, %%xmm4\n vorpd %%ymm5, %%ymm4, %%ymm4\n vandpd %%ymm15, %%ymm4, %%ymm4\n vmovdqu %%ymm4, (%[out])\n vzeroupper\n"
        : "=&a"(result)
        : [in] "r"(in), [out] "r"(out)
        : "rcx", "r11", "memory", "xmm4", "xmm5", "xmm15");
    expect(memcmp(in, out, sizeof in) == 0 && result == getpid());
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 3000);
    long parent = getppid();
    unsigned control = 0x1f80 | 0x6000;
    uint16_t x87 = 0x0f7f;
    double sum = 0;
    __builtin_cpu_init();
    __asm__ volatile("ldmxcsr %0" ::"m"(control));
    __asm__ volatile("fldcw %0" ::"m"(x87));
    for (long i = 0; i < rounds; i++) {
        uint64_t *words = (uint64_t *)&before;
        for (size_t w = 0; w < sizeof before / sizeof *words; w++) words[w] = mix(i * 1000 + w);
        long double in_x87 = (long double)i / 3, back;
        __asm__ volatile("fldt %0" ::"m"(in_x87));
        call_once();
        __asm__ volatile("fstpt %0" : "=m"(back));
        expect(memcmp(&in_x87, &back, 10) == 0);
        expect((long)found.general[0] == parent);
        expect(found.general[2] == found.after);
        for (int r = 0; r < 16; r++)
            if (r != 0 && r != 2 && r != 7 && r != 11) expect(found.general[r] == before.general[r]);
        expect(memcmp(found.vector, before.vector, sizeof before.vector) == 0);
        expect(memcmp(found.red_zone, before.red_zone, sizeof before.red_zone) == 0);
        // Carry as it was set; r11 as the flags were (the resume flag is the kernel's own business).
        expect((found.flags & 1) == 1 && ((found.general[11] ^ found.flags) & 0x8d5 & ~0x10000) == 0);
        if (__builtin_cpu_supports("avx")) upper_halves(i);
        sum += found.general[11] & 0xfff;
    }
    unsigned control_after;
    uint16_t x87_after;
    __asm__ volatile("stmxcsr %0" : "=m"(control_after));
    __asm__ volatile("fstcw %0" : "=m"(x87_after));
    expect((control_after & 0xffc0) == control && x87_after == x87);
    say("%ld rounds, parent %ld\n", rounds, parent);
    (void)sum;
}
