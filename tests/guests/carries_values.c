// A value of the environment and one of a file go through memory, and nothing depends on them, unless the program is told to show them.
// run:
#include "guest.h"

#include <sys/mman.h>

int main(int argc, char **argv) {
    const char *value = getenv("GUEST_SECRET_VALUE");
    char copy[256] = "none";
    if (value) strncpy(copy, value, sizeof copy - 1);
    say("a variable of %zu bytes\n", strlen(copy));
    if (argc < 2) return 0;
    int fd = open(argv[1], O_RDONLY);
    expect(fd >= 0);
    static char read_in[1 << 16];
    ssize_t n = read(fd, read_in, sizeof read_in);
    expect(n > 0);
    char *mapped = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    expect(mapped != MAP_FAILED);
    say("%zd bytes read, %s\n", n, memcmp(read_in, mapped, n) == 0 ? "as mapped" : "NOT as mapped");
    if (argc > 2) say("the variable is %s\n", copy);
    return 0;
}
