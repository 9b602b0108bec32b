// Control may reach a `syscall` instruction past the instruction that loads its number: sites may only be rewritten so that
// both ways work. The number then comes from somewhere else.
// run: 2000
#include "guest.h"

// getpid by the front door (`door` 0), any call by the side door.
__attribute__((noinline)) static long two_doors(long door, long number) {
    long result;
    __asm__ volatile(
        "mov %[number], %%rax\n"
        "test %[door], %[door]\n"
        "jnz 1f\n"
        "mov $39, %%eax\n"
        "1: syscall\n"
        : "=&a"(result)
        : [door] "r"(door), [number] "r"(number)
        : "rcx", "r11", "memory", "cc");
    return result;
}

// The same, with bytes before the `mov` that would read as a prefix of it.
__attribute__((noinline)) static long after_prefix_byte(void) {
    long result;
    __asm__ volatile(
        "jmp 1f\n"
        ".byte 0x48\n"
        "1: mov $110, %%eax\n"
        "syscall\n"
        : "=&a"(result)
        :
        : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 2000), parent = getppid(), me = getpid();
    for (long i = 0; i < rounds; i++) {
        expect(two_doors(0, 0) == me);
        expect(two_doors(1, SYS_getppid) == parent);
        expect(two_doors(1, 100000) == -ENOSYS);
        expect(after_prefix_byte() == parent);
    }
    say("%ld rounds by both doors, pid %ld\n", rounds, me);
}
