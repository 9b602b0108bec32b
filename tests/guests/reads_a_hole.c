// Maps a file, which may be mostly a hole, as a whole, and reads 64 MiB of it, with what lies at 1 GiB in the middle. Says sums. Usage: reads_a_hole FILE
// run: /bin/bash
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t sum(uint64_t h, const unsigned char *p, long n) {
    for (long i = 0; i < n; i += 7) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

int main(int argc, char **argv) {
    static unsigned char bytes[1 << 20];
    struct stat st;
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &st) != 0) return 2;
    unsigned char *p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return 3;
    long middle = st.st_size > 2L << 30 ? 1L << 30 : 0, len = 1 << 20;
    if (len > st.st_size - middle) len = st.st_size - middle;
    printf("%llu\n", (unsigned long long)sum(1, p + middle, len));
    uint64_t h = 1;
    long all = 0;
    for (int i = 0; i < 64; i++) {
        ssize_t n = pread(fd, bytes, sizeof bytes, middle + ((long)i - (middle ? 32 : 0)) * (1 << 20));
        if (n <= 0) break;
        h = sum(h, bytes, n);
        all += n;
    }
    printf("%llu of %ld\n", (unsigned long long)h, all);
    return 0;
}
