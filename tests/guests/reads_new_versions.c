// Reads six files in turn, and puts a new version in the place of one now and then. Says a sum of each. Usage: reads_new_versions DIRECTORY ROUNDS
// run: . 20
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20, FILES = 6 };
static unsigned char bytes[SIZE];

static void name(char *to, int i, const char *end) { sprintf(to, "file%d%s", i % FILES, end); }

static void make(int i, uint64_t seed) {
    char new[32], path[32];
    name(new, i, ".new");
    name(path, i, "");
    for (int k = 0; k < SIZE; k++) bytes[k] = (seed = seed * 6364136223846793005u + 1) >> 56;
    int fd = open(new, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (write(fd, bytes, SIZE) != SIZE) exit(1);
    close(fd);
    rename(new, path);
}

int main(int argc, char **argv) {
    if (argc < 3 || chdir(argv[1]) != 0) return 2;
    for (int i = 0; i < FILES; i++) make(i, i);
    for (int i = 0; i < atoi(argv[2]); i++) {
        // When a version is read, it is older than a tick of the file system's clock.
        struct timespec moment = {0, 6000000};
        nanosleep(&moment, NULL);
        char path[32];
        name(path, i, "");
        int fd = open(path, O_RDONLY);
        uint64_t h = 1;
        ssize_t n;
        while ((n = read(fd, bytes, 1 << 16)) > 0)
            for (ssize_t k = 0; k < n; k += 3) h = (h ^ bytes[k]) * 1099511628211u;
        close(fd);
        if (i % 7 == 0) make(i, 100 + i);
        printf("%d %llu\n", i, (unsigned long long)h);
        fflush(stdout);
    }
    return 0;
}
