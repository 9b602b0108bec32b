// The smallest program with a libc: one line, and an exit status of its own.
// variant: static -static
// variant: static-pie -static-pie -fPIE
// variant: nonpie -no-pie -fno-pie
// run:
// run: 42 => 42
// run: 255 => 255
#include "guest.h"

int main(int argc, char **argv) {
    printf("hello, world\n");
    fprintf(stderr, "and hello, standard error\n");
    return number(argc, argv, 1, 0);
}
