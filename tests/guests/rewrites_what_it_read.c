// Reads a file, and changes it right afterwards: in place, from its beginning, through a mapping, its length, its holes, by a file in its place, by a child. What
// was read before each change, and after, is summed. Usage: rewrites_what_it_read FILE ROUNDS [alone]
// run: file 14
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };
static unsigned char bytes[SIZE];
static const char *path;
static int ways = 7;

static void wait_a_moment(void) {
    /* Longer than a tick of the file system's clock, so that the file counts as settled. */
    struct timespec t = {0, 30000000};
    nanosleep(&t, NULL);
}

static uint64_t read_all(void) {
    int fd = open(path, O_RDONLY);
    uint64_t h = 1;
    ssize_t n;
    while ((n = read(fd, bytes, 1 << 16)) > 0)
        for (ssize_t i = 0; i < n; i += 7) h = (h ^ bytes[i]) * 1099511628211u;
    close(fd);
    return h;
}

static void fill(unsigned seed) {
    for (int i = 0; i < SIZE; i++) bytes[i] = (seed = seed * 1103515245 + 12345) >> 16;
}

static void change(int how, unsigned seed) {
    int fd;
    fill(seed);
    switch (how % ways) {
    case 0:
        fd = open(path, O_RDWR);
        pwrite(fd, bytes, 300000, 1000);
        break;
    case 1:
        fd = open(path, O_WRONLY | O_TRUNC);
        write(fd, bytes, SIZE);
        break;
    case 2: {
        fd = open(path, O_RDWR);
        unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        memcpy(p + 5000, bytes, 500000);
        munmap(p, SIZE);
        break;
    }
    case 3:
        truncate(path, SIZE / 2);
        truncate(path, SIZE);
        return;
    case 4:
        fd = open(path, O_RDWR);
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 100000);
        break;
    case 6: {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            fd = open(path, O_WRONLY);
            write(fd, bytes, SIZE);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        return;
    }
    default: {
        char other[4096];
        snprintf(other, sizeof other, "%s.new", path);
        fd = open(other, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        write(fd, bytes, SIZE);
        rename(other, path);
    }
    }
    close(fd);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    path = argv[1];
    if (argc > 3) ways = 6;
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    fill(1);
    write(fd, bytes, SIZE);
    close(fd);
    for (int i = 0; i < atoi(argv[2]); i++) {
        wait_a_moment();
        uint64_t before = read_all();
        change(i, i + 2);
        printf("%llu %llu\n", (unsigned long long)before, (unsigned long long)read_all());
    }
    return 0;
}
