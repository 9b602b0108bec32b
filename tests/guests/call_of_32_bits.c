// A system call by the door of 32-bit programs: kernels can be built without it, and then say ENOSYS.
#include "guest.h"

int main(void) {
    long result, number = 20;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory", "r8", "r9", "r10", "r11");
    expect(result == getpid() || (int)result == -ENOSYS);
    say("getpid by int 0x80: %ld\n", (int)result == -ENOSYS ? 0 : result);
}
