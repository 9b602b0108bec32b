// A program without a libc, an interpreter, TLS or a stack protector: nothing but system calls.
// flags: -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie
// run: => 17
static long call3(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noreturn, used)) static void body(const long *stack) {
    static const char text[] = "bare words\n";
    char line[32] = "arguments: 0\n";
    call3(1, 1, (long)text, sizeof text - 1);
    line[11] = (char)('0' + stack[0]);
    call3(1, 1, (long)line, 13);
    for (;;) call3(231, 17, 0, 0);
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall body\n");
