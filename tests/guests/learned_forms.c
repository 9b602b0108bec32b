// Plain loads in every form that is learned, in a function whose threads hand over to each other by plain loads: once that has been learned, all of
// them are made by stubs. What they leave in registers and flags is told, and is the same natively.
// run: 200
#include "guest.h"

// The six arithmetic flags: carry and overflow, parity, adjust, zero, sign.
#define FLAGS 0x8d5u
#define AT 0x100

// The lowest 16 bits of its address are zero, so that what is told does not depend on where it lies.
_Alignas(65536) uint64_t forms[64];

// A register that still has the address, or something near it, and one that has a value.
static uint64_t plain(uint64_t reg, uint64_t p) { return reg >> 16 == p >> 16 ? (reg & 0xffff) | 1ull << 60 : reg; }

// One instruction, with the address in rax, rcx, rdx, rsi and r12, and 8 in rbx; what is in the registers and the flags behind it.
#define FORM(text)                                                                                                     \
    ({                                                                                                                 \
        uint64_t p = (uint64_t)forms + AT, a = p, c = p, d = p, b = 8, s = p, flags_ = before;                         \
        __asm__ volatile("sub $256, %%rsp\n\tmov %[s], %%r12\n\tpush $77\n\tpush %[f]\n\tpopf\n\t" text                \
                         "\n\tpushf\n\tpop %[f]\n\tadd $264, %%rsp"                                                    \
                         : "+a"(a), "+c"(c), "+d"(d), "+b"(b), [s] "+S"(s), [f] "+&D"(flags_)                          \
                         :                                                                                             \
                         : "memory", "cc", "r12");                                                                     \
        hash = mix(hash + plain(a, p));                                                                                \
        hash = mix(hash + plain(c, p));                                                                                \
        hash = mix(hash + plain(d, p));                                                                                \
        hash = mix(hash + plain(b, p));                                                                                \
        hash = mix(hash + plain(s, p));                                                                                \
        hash = mix(hash + (flags_ & FLAGS));                                                                           \
    })

static volatile long turn, value = 1, spins;

static __attribute__((noinline)) uint64_t take_turns(long me, long rounds) {
    uint64_t hash = 0;
    for (long i = 0; i < rounds; i++) {
        while (turn != me) {
            spins++;
            sched_yield();
        }
        value = value * 31 + me;
        uint64_t before = i & 1 ? FLAGS : 0;
        // mov, of all sizes, from and to the registers that a stub uses, and others.
        FORM("movb (%%rax), %%al");
        FORM("movb (%%rcx), %%ah");
        FORM("movb 1(%%rdx), %%r12b\n\tmov %%r12b, %%bl");
        FORM("movw 2(%%rdx), %%dx");
        FORM("movl 4(%%rcx), %%ecx");
        FORM("movq 8(%%rax), %%rax");
        FORM("movq -8(%%rax), %%rcx");
        FORM("movq 0x50(%%r12), %%rdx");
        FORM("movq (%%rax,%%rbx,2), %%rbx");
        FORM("movq -8(%%rdx,%%rbx), %%rsi");
        FORM("movq (%%rsp), %%rdx");
        FORM("movq 0x108+forms(%%rip), %%rax");
        FORM("movl 0x110+forms(%%rip), %%edx");
        FORM("movw 0x112+forms(%%rip), %%cx");
        FORM("movb 0x113+forms(%%rip), %%bl");
        // With zeros or the sign.
        FORM("movzbl 3(%%rax), %%eax");
        FORM("movzwl 6(%%rcx), %%edx");
        FORM("movsbq 7(%%rdx), %%rcx");
        FORM("movswq 6(%%rsi), %%rax");
        FORM("movslq 4(%%r12), %%rdx");
        FORM("movsbl 0x107+forms(%%rip), %%ecx");
        // What the flags say, or choose.
        FORM("cmpb $0x5a, 1(%%rax)");
        FORM("cmpw %%cx, 2(%%rdx)");
        FORM("cmpl 4(%%rcx), %%ebx");
        FORM("cmpq %%rbx, 8(%%rax)");
        FORM("cmpq 0x108+forms(%%rip), %%rbx");
        FORM("testb $0x81, 7(%%rcx)");
        FORM("testl %%ebx, 4(%%rdx)");
        FORM("testq $0x7f, 16(%%r12)");
        FORM("cmovc 8(%%rax), %%rax");
        FORM("cmovnz 8(%%rcx), %%rdx");
        FORM("cmovo 0x108+forms(%%rip), %%rcx");
        // Arithmetic to a register.
        FORM("addb 1(%%rax), %%al");
        FORM("addq 16(%%rcx), %%rbx");
        FORM("subw 2(%%rdx), %%bx");
        FORM("andq 8(%%rax), %%rbx");
        FORM("orq 16(%%rsi), %%rbx");
        FORM("xorl 4(%%rcx), %%ebx");
        forms[AT / 8 + i % 8] ^= forms[i % 64] << 7;
        turn = !me;
    }
    return hash;
}

static long rounds;
static uint64_t hashes[2];

static void *body(void *p) {
    long me = (intptr_t)p;
    hashes[me] = take_turns(me, rounds);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 200);
    for (uint64_t i = 0; i < 64; i++) forms[i] = mix(i) ;
    pthread_t other = start(body, (void *)1);
    body((void *)0);
    finish(other);
    say("%016lx %016lx, %016lx\n", (unsigned long)hashes[0], (unsigned long)hashes[1], (unsigned long)value);
}
