// The base of %gs changed by an instruction, which asks nobody: to memory of the program's, or to where nothing is. Natively it is the program's own business.
// run: not
#include "guest.h"

int main(int argc, char **argv) {
    static long words[4] = {11, 22, 33, 44};
    expect(argc == 2);
    if (strcmp(argv[1], "not")) {
        long base = strcmp(argv[1], "nowhere") ? (long)words : 0x1000;
        __asm__ volatile("wrgsbase %0" : : "r"(base));
    }
    say("goes on\n");
}
