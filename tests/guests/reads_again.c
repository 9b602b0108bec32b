// Reads a file from its beginning to its end, again and again, and says a sum each time. Usage: reads_again FILE ROUNDS
// run: /bin/bash 3
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static unsigned char bytes[1 << 16];
    if (argc < 3) return 2;
    for (int i = 0; i < atoi(argv[2]); i++) {
        int fd = open(argv[1], O_RDONLY);
        if (fd < 0) continue;
        uint64_t h = 1;
        ssize_t n;
        while ((n = read(fd, bytes, sizeof bytes)) > 0)
            for (ssize_t k = 0; k < n; k += 3) h = (h ^ bytes[k]) * 1099511628211u;
        close(fd);
        printf("%llu\n", (unsigned long long)h);
    }
    return 0;
}
