// An asynchronous signal leaves no trace in the interrupted code: general registers, flags, the red zone, x87, vector registers.
// run: 5
#include "guest.h"

static volatile sig_atomic_t ticks;
static uint64_t bad;

__attribute__((target("avx"))) static void spoil_upper(void) {
    __asm__ volatile("vpcmpeqd %%xmm1, %%xmm1, %%xmm1\n vinsertf128 $1, %%xmm1, %%ymm1, %%ymm1\n vmovapd %%ymm1, %%ymm7\n vmovapd %%ymm1, %%ymm8\n vzeroupper\n"
                     :
                     :
                     : "xmm1", "xmm7", "xmm8");
}

static void handler(int number) {
    (void)number;
    // Use everything that a handler may use.
    volatile long double x = 1;
    for (int i = 0; i < 10; i++) x = x / 3 + i;
    uint64_t words[64];
    memset(words, 0xff, sizeof words);
    if (__builtin_cpu_supports("avx")) spoil_upper();
    ticks += (words[5] != 0);
}

// Loops until `ticks` reaches `until`, checking in every round that its registers hold what they held before. Returns the rounds.
__attribute__((noinline)) static uint64_t loop(sig_atomic_t until) {
    uint64_t rounds = 0;
    __asm__ volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n"
        "mov $0x1111111111111111, %%rbx\n mov $0x2222222222222222, %%rbp\n mov $0x3333333333333333, %%r8\n mov $0x4444444444444444, %%r9\n"
        "mov $0x5555555555555555, %%r10\n mov $0x6666666666666666, %%r11\n mov $0x7777777777777777, %%r12\n mov $0x1888888888888888, %%r13\n"
        "mov $0x1999999999999999, %%r14\n mov $0x1aaaaaaaaaaaaaaa, %%r15\n"
        "movq %%rbx, %%xmm0\n movq %%r9, %%xmm7\n movq %%r14, %%xmm15\n"
        "mov %%rbx, -8(%%rsp)\n mov %%r15, -128(%%rsp)\n"
        "fldpi\n"
        "1:\n"
        "inc %[rounds]\n"
        "mov $0x1111111111111111, %%rax\n cmp %%rax, %%rbx\n jne 2f\n cmp %%rax, -8(%%rsp)\n jne 2f\n movq %%xmm0, %%rdx\n cmp %%rax, %%rdx\n jne 2f\n"
        "mov $0x2222222222222222, %%rax\n cmp %%rax, %%rbp\n jne 2f\n"
        "mov $0x3333333333333333, %%rax\n cmp %%rax, %%r8\n jne 2f\n"
        "mov $0x4444444444444444, %%rax\n cmp %%rax, %%r9\n jne 2f\n movq %%xmm7, %%rdx\n cmp %%rax, %%rdx\n jne 2f\n"
        "mov $0x5555555555555555, %%rax\n cmp %%rax, %%r10\n jne 2f\n"
        "mov $0x6666666666666666, %%rax\n cmp %%rax, %%r11\n jne 2f\n"
        "mov $0x7777777777777777, %%rax\n cmp %%rax, %%r12\n jne 2f\n"
        "mov $0x1888888888888888, %%rax\n cmp %%rax, %%r13\n jne 2f\n"
        "mov $0x1999999999999999, %%rax\n cmp %%rax, %%r14\n jne 2f\n movq %%xmm15, %%rdx\n cmp %%rax, %%rdx\n jne 2f\n"
        "mov $0x1aaaaaaaaaaaaaaa, %%rax\n cmp %%rax, %%r15\n jne 2f\n cmp %%rax, -128(%%rsp)\n jne 2f\n"
        "mov (%[ticks]), %%eax\n cmp %[until], %%eax\n jl 1b\n"
        "jmp 3f\n"
        "2: incq (%[bad])\n"
        "3: fstp %%st(0)\n"
        "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : [rounds] "+c"(rounds)
        : [ticks] "D"(&ticks), [until] "S"((int)until), [bad] "r"(&bad)
        : "rax", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm7", "xmm15");
    return rounds;
}

int main(int argc, char **argv) {
    long wanted = number(argc, argv, 1, 5);
    __builtin_cpu_init();
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL));
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 3000}, {.tv_usec = 3000}}, NULL));
    for (long i = 1; i <= wanted; i++) {
        uint64_t rounds = loop(ticks + 1);
        expect(bad == 0);
        say("%lu rounds\n", rounds);
    }
}
