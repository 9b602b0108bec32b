// Children in their parent's memory end at a site of their own, with a value in r11 that a system call would overwrite: whichever of
// them is the one at which the recorder rewrites the site, what the last call sees of the registers is the same.
#include "guest.h"
#include <sys/wait.h>

__attribute__((noinline, noreturn)) static void leave(int status) {
    __asm__ volatile("mov $110, %%eax\n syscall\n"
                     "mov %%ebx, %%edi\n mov $0x12345678, %%r11d\n mov $231, %%eax\n syscall\n hlt"
                     :
                     : "b"(status)
                     : "rax", "rcx", "r11", "rdi", "memory");
    __builtin_unreachable();
}

int main(void) {
    for (volatile int i = 0; i < 30; i++) {
        pid_t pid = vfork();
        if (pid == 0) leave(i);
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == i);
    }
    say("thirty children of %d\n", getpid());
}
