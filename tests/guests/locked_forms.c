// Instructions that change memory in one step, in every form: with operands of 1 to 16 bytes, in a register's memory, in a variable, on the stack,
// in the thread's own memory; with what they leave in registers and flags. Several threads use the same memory, and what each saw is told: all of
// it follows from the order of the instructions alone.
// run: 300
#include "guest.h"

#define THREADS 4

typedef unsigned __int128 wide;

static struct {
    uint8_t b;
    uint16_t w;
    uint32_t l;
    uint64_t q;
    uint64_t bits[8];
    _Alignas(16) wide x;
} shared;
static __thread uint64_t own;

// The six arithmetic flags: carry and overflow, parity, adjust, zero, sign.
#define FLAGS 0x8d5u

// An instruction on memory through a register; the flags after it, from known ones before.
#define ONE(text, memory, value, before, mask)                                                                         \
    ({                                                                                                                 \
        uint64_t flags_ = (before);                                                                                    \
        __typeof__(value) v_ = (value);                                                                                \
        __asm__ volatile("sub $256, %%rsp\n\tpush %[f]\n\tpopf\n\t" text "\n\tpushf\n\tpop %[f]\n\tadd $256, %%rsp"        \
                         : [f] "+&r"(flags_), [v] "+&r"(v_)                                                            \
                         : [m] "r"(&(memory))                                                                          \
                         : "memory", "cc", "rax", "rdx");                                                              \
        hash = mix(hash + (uint64_t)v_);                                                                               \
        hash = mix(hash + (flags_ & (mask)));                                                                          \
    })

static uint64_t all_forms(uint64_t hash, uint64_t i) {
    uint64_t before = i & 1 ? 0x8d5 : 0;
    ONE("lock addb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS);
    ONE("lock addb $3, (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock subb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS);
    ONE("lock subb $3, (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock andb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock andb $-3, (%[m])", shared.b, (uint8_t)i, before, FLAGS & ~0x10u);
    ONE("lock orb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock orb $2, (%[m])", shared.b, (uint8_t)i, before, FLAGS & ~0x10u);
    ONE("lock xorb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock xorb $3, (%[m])", shared.b, (uint8_t)i, before, FLAGS & ~0x10u);
    ONE("lock adcb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS);
    ONE("lock adcb $3, (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock sbbb %b[v], (%[m])", shared.b, (uint8_t)(i * 77 + 1), before, FLAGS);
    ONE("lock sbbb $3, (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock incb (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock decb (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock notb (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock negb (%[m])", shared.b, (uint8_t)i, before, FLAGS);
    ONE("lock xaddb %b[v], (%[m])", shared.b, (uint8_t)(i + 5), before, FLAGS);
    ONE("xchgb %b[v], (%[m])", shared.b, (uint8_t)(i * 3), before, FLAGS);
    ONE("lock xchgb (%[m]), %b[v]", shared.b, (uint8_t)(i * 7), before, FLAGS);
    ONE("mov (%[m]), %%al\n\tlock cmpxchgb %b[v], (%[m])\n\tmov %%al, %b[v]", shared.b, (uint8_t)(i + 9), before, FLAGS);
    ONE("lock addw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS);
    ONE("lock addw $3, (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock subw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS);
    ONE("lock subw $3, (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock andw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock andw $-3, (%[m])", shared.w, (uint16_t)i, before, FLAGS & ~0x10u);
    ONE("lock orw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock orw $2, (%[m])", shared.w, (uint16_t)i, before, FLAGS & ~0x10u);
    ONE("lock xorw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock xorw $3, (%[m])", shared.w, (uint16_t)i, before, FLAGS & ~0x10u);
    ONE("lock adcw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS);
    ONE("lock adcw $3, (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock sbbw %w[v], (%[m])", shared.w, (uint16_t)(i * 77 + 1), before, FLAGS);
    ONE("lock sbbw $3, (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock incw (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock decw (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock notw (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock negw (%[m])", shared.w, (uint16_t)i, before, FLAGS);
    ONE("lock xaddw %w[v], (%[m])", shared.w, (uint16_t)(i + 5), before, FLAGS);
    ONE("xchgw %w[v], (%[m])", shared.w, (uint16_t)(i * 3), before, FLAGS);
    ONE("lock xchgw (%[m]), %w[v]", shared.w, (uint16_t)(i * 7), before, FLAGS);
    ONE("mov (%[m]), %%ax\n\tlock cmpxchgw %w[v], (%[m])\n\tmov %%ax, %w[v]", shared.w, (uint16_t)(i + 9), before, FLAGS);
    ONE("lock btsw $5, (%[m])", shared.w, (uint16_t)i, before, 1);
    ONE("lock btsw %w[v], (%[m])", shared.bits[4], (uint16_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btrw $5, (%[m])", shared.w, (uint16_t)i, before, 1);
    ONE("lock btrw %w[v], (%[m])", shared.bits[4], (uint16_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btcw $5, (%[m])", shared.w, (uint16_t)i, before, 1);
    ONE("lock btcw %w[v], (%[m])", shared.bits[4], (uint16_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock addl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS);
    ONE("lock addl $3, (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock subl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS);
    ONE("lock subl $3, (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock andl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock andl $-3, (%[m])", shared.l, (uint32_t)i, before, FLAGS & ~0x10u);
    ONE("lock orl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock orl $2, (%[m])", shared.l, (uint32_t)i, before, FLAGS & ~0x10u);
    ONE("lock xorl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock xorl $3, (%[m])", shared.l, (uint32_t)i, before, FLAGS & ~0x10u);
    ONE("lock adcl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS);
    ONE("lock adcl $3, (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock sbbl %k[v], (%[m])", shared.l, (uint32_t)(i * 77 + 1), before, FLAGS);
    ONE("lock sbbl $3, (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock incl (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock decl (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock notl (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock negl (%[m])", shared.l, (uint32_t)i, before, FLAGS);
    ONE("lock xaddl %k[v], (%[m])", shared.l, (uint32_t)(i + 5), before, FLAGS);
    ONE("xchgl %k[v], (%[m])", shared.l, (uint32_t)(i * 3), before, FLAGS);
    ONE("lock xchgl (%[m]), %k[v]", shared.l, (uint32_t)(i * 7), before, FLAGS);
    ONE("mov (%[m]), %%eax\n\tlock cmpxchgl %k[v], (%[m])\n\tmov %%eax, %k[v]", shared.l, (uint32_t)(i + 9), before, FLAGS);
    ONE("lock btsl $5, (%[m])", shared.l, (uint32_t)i, before, 1);
    ONE("lock btsl %k[v], (%[m])", shared.bits[4], (uint32_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btrl $5, (%[m])", shared.l, (uint32_t)i, before, 1);
    ONE("lock btrl %k[v], (%[m])", shared.bits[4], (uint32_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btcl $5, (%[m])", shared.l, (uint32_t)i, before, 1);
    ONE("lock btcl %k[v], (%[m])", shared.bits[4], (uint32_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock addq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS);
    ONE("lock addq $3, (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock subq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS);
    ONE("lock subq $3, (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock andq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock andq $-3, (%[m])", shared.q, (uint64_t)i, before, FLAGS & ~0x10u);
    ONE("lock orq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock orq $2, (%[m])", shared.q, (uint64_t)i, before, FLAGS & ~0x10u);
    ONE("lock xorq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS & ~0x10u);
    ONE("lock xorq $3, (%[m])", shared.q, (uint64_t)i, before, FLAGS & ~0x10u);
    ONE("lock adcq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS);
    ONE("lock adcq $3, (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock sbbq %q[v], (%[m])", shared.q, (uint64_t)(i * 77 + 1), before, FLAGS);
    ONE("lock sbbq $3, (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock incq (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock decq (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock notq (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock negq (%[m])", shared.q, (uint64_t)i, before, FLAGS);
    ONE("lock xaddq %q[v], (%[m])", shared.q, (uint64_t)(i + 5), before, FLAGS);
    ONE("xchgq %q[v], (%[m])", shared.q, (uint64_t)(i * 3), before, FLAGS);
    ONE("lock xchgq (%[m]), %q[v]", shared.q, (uint64_t)(i * 7), before, FLAGS);
    ONE("mov (%[m]), %%rax\n\tlock cmpxchgq %q[v], (%[m])\n\tmov %%rax, %q[v]", shared.q, (uint64_t)(i + 9), before, FLAGS);
    ONE("lock btsq $5, (%[m])", shared.q, (uint64_t)i, before, 1);
    ONE("lock btsq %q[v], (%[m])", shared.bits[4], (uint64_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btrq $5, (%[m])", shared.q, (uint64_t)i, before, 1);
    ONE("lock btrq %q[v], (%[m])", shared.bits[4], (uint64_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    ONE("lock btcq $5, (%[m])", shared.q, (uint64_t)i, before, 1);
    ONE("lock btcq %q[v], (%[m])", shared.bits[4], (uint64_t)(int64_t)((int64_t)(i % 400) - 200), before, 1);
    // Compared and exchanged in pairs.
    uint64_t low = hash, high = i;
    uint8_t same;
    __asm__ volatile("lock cmpxchg16b %[x]\n\tsete %[e]" : [x] "+m"(shared.x), "+a"(low), "+d"(high), [e] "=q"(same) : "b"(i), "c"(hash) : "cc");
    __asm__ volatile("lock cmpxchg16b %[x]\n\tsete %[e]" : [x] "+m"(shared.x), "+a"(low), "+d"(high), [e] "=q"(same) : "b"(i + 1), "c"(hash) : "cc");
    hash = mix(hash + low + high + same);
    uint32_t l = (uint32_t)i, h = 0;
    __asm__ volatile("lock cmpxchg8b %[x]\n\tsete %[e]" : [x] "+m"(shared.q), "+a"(l), "+d"(h), [e] "=q"(same) : "b"(1), "c"(2) : "cc");
    __asm__ volatile("lock cmpxchg8b %[x]\n\tsete %[e]" : [x] "+m"(shared.q), "+a"(l), "+d"(h), [e] "=q"(same) : "b"(3), "c"((uint32_t)i) : "cc");
    hash = mix(hash + l + h + same);
    // A variable by its address, one with an index, the stack, the thread's own memory.
    uint64_t v = i, on_stack = hash;
    __asm__ volatile("lock xadd %0, %1" : "+r"(v), "+m"(shared.q) : : "cc");
    hash = mix(hash + v);
    __asm__ volatile("lock xadd %0, (%2, %3, 8)" : "+r"(v), "+m"(shared.bits) : "r"(shared.bits), "r"(i % 8) : "cc");
    hash = mix(hash + v);
    __asm__ volatile("lock xadd %0, %1" : "+r"(v), "+m"(on_stack) : : "cc");
    __asm__ volatile("xchg %0, %1" : "+r"(v), "+m"(own));
    __asm__ volatile("lock addq $3, %0" : "+m"(own) : : "cc");
    // Registers that are address and operand at once, and those that a stub would use.
    uint64_t *at = &shared.q;
    __asm__ volatile("mov %1, %%rdx\n\tlock xadd %%rdx, (%%rdx)\n\tmov %%rdx, %0" : "=r"(v) : "r"(at) : "rdx", "cc", "memory");
    hash = mix(hash + v);
    __asm__ volatile("mov %1, %%rcx\n\txor %%eax, %%eax\n\tlock xadd %%rcx, (%%rcx, %%rax, 4)\n\tmov %%rcx, %0" : "=r"(v) : "r"(at) : "rax", "rcx", "cc", "memory");
    hash = mix(hash + v);
    __asm__ volatile("mov %1, %%rax\n\tlock xadd %%rax, (%%rax)\n\tmov %%rax, %0" : "=r"(v) : "r"(at) : "rax", "cc", "memory");
    // What lies below the stack pointer belongs to a function that calls nobody.
    uint64_t red = i;
    __asm__ volatile("mov %0, -8(%%rsp)\n\tlock incq (%1)\n\tmov -8(%%rsp), %0" : "+r"(red) : "r"(at) : "cc", "memory");
    expect(red == i);
    // A branch over the prefix alone, taken and not taken.
    __asm__ volatile("test $1, %b1\n\tje 1f\n\tlock\n1:\tincl %0" : "+m"(shared.l) : "q"(i) : "cc");
    // A loop around the instruction, and one into the middle of what follows it.
    uint64_t rounds = i % 5 + 1, sum = 0;
    __asm__ volatile("1:\tlock incq (%2)\n2:\tadd $1, %1\n\tdec %0\n\tjz 3f\n\ttest $1, %b0\n\tjz 2b\n\tjmp 1b\n3:" : "+q"(rounds), "+r"(sum) : "r"(at) : "cc", "memory");
    hash = mix(hash + v + own + on_stack + sum);
    return hash;
}

static void *body(void *p) {
    uint64_t hash = (uintptr_t)p, rounds = *(uint64_t *)p;
    for (uint64_t i = 0; i < rounds; i++) hash = all_forms(hash, i);
    return (void *)hash;
}

int main(int argc, char **argv) {
    uint64_t rounds = number(argc, argv, 1, 300);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) threads[i] = start(body, &rounds);
    for (int i = 0; i < THREADS; i++) say("thread %d saw %lu\n", i, (unsigned long)(uintptr_t)finish(threads[i]));
    say("left %lu %lu\n", (unsigned long)hash_bytes(&shared, 16), (unsigned long)hash_bytes(shared.bits, sizeof shared.bits));
}
