// Reads one file in all the ways there are: by position and by offset, into one buffer and into several, in large pieces and small ones, over and over,
// from several descriptors, and from several processes or threads. Says a sum of each. Usage: reads_of_files FILE [threads]
// run: /bin/bash
// run: /bin/bash threads
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *path;
static size_t size;

static uint64_t sum(uint64_t h, const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void say(const char *what, uint64_t h, size_t n) { printf("%s %llu %zu\n", what, (unsigned long long)h, n); }

static int begin(void) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

/* By position, in pieces of this size. */
static void by_position(const char *what, size_t piece) {
    int fd = begin();
    unsigned char *p = malloc(piece);
    uint64_t h = 1;
    size_t all = 0;
    ssize_t n;
    while ((n = read(fd, p, piece)) > 0) {
        h = sum(h, p, n);
        all += n;
    }
    say(what, h, all);
    free(p);
    close(fd);
}

static void by_offset(void) {
    int fd = begin();
    unsigned char *p = malloc(1 << 16);
    uint64_t h = 1;
    size_t all = 0;
    /* Backwards, and pieces that overlap. */
    for (off_t at = size - 50000; at >= 0; at -= 40000) {
        ssize_t n = pread(fd, p, 65536, at);
        if (n <= 0) break;
        h = sum(h, p, n);
        all += n;
    }
    say("pread", h, all);
    free(p);
    close(fd);
}

static void into_several(void) {
    int fd = begin();
    unsigned char *p = malloc(200000);
    struct iovec v[3] = {{p, 10}, {p + 10, 100001}, {p + 150000, 40000}};
    uint64_t h = 1;
    size_t all = 0;
    ssize_t n;
    memset(p, 0, 200000);
    while ((n = readv(fd, v, 3)) > 0) {
        h = sum(h, p, 200000);
        all += n;
    }
    say("readv", h, all);
    for (off_t at = 12345; (n = preadv(fd, v, 3, at)) > 0; at += 123456) {
        h = sum(h, p, 200000);
        all += n;
    }
    say("preadv", h, all);
    lseek(fd, 777, SEEK_SET);
    while ((n = preadv2(fd, v, 3, -1, 0)) > 0) {
        h = sum(h, p, 200000);
        all += n;
    }
    say("preadv2", h, all);
    free(p);
    close(fd);
}

/* The last page of the buffer can't be written: the kernel reads less than was asked for. */
static void into_a_wall(void) {
    int fd = begin();
    size_t room = 40 * 4096;
    unsigned char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p + room - 4096, 4096, PROT_READ);
    uint64_t h = 1;
    for (int i = 0; i < 5; i++) {
        ssize_t n = read(fd, p + 100, room);
        h = sum(h * 31 + n, p, room);
    }
    say("wall", h, lseek(fd, 0, SEEK_CUR));
    munmap(p, room);
    close(fd);
}

static void by_stdio(void) {
    FILE *f = fopen(path, "r");
    unsigned char line[5000];
    uint64_t h = 1;
    size_t all = 0, n;
    while ((n = fread(line, 1, sizeof line, f)) > 0) {
        h = sum(h, line, n);
        all += n;
    }
    say("stdio", h, all);
    fclose(f);
}

/* Two descriptors with one position, and a child with the same. */
static void with_a_child(void) {
    int fd = begin(), other = dup(fd);
    unsigned char *p = malloc(100000);
    uint64_t h = 1;
    for (int i = 0; i < 6; i++) {
        ssize_t n = read(i % 2 ? fd : other, p, 100000);
        h = sum(h, p, n);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ssize_t n = read(fd, p, 100000);
        say("child", sum(1, p, n), n);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    ssize_t n = read(fd, p, 100000);
    say("parent", sum(h, p, n), lseek(other, 0, SEEK_CUR));
    free(p);
    close(fd);
    close(other);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shares[4];
static int shared;
static size_t taken;

static void *thread(void *arg) {
    size_t me = (size_t)arg;
    int fd = begin();
    unsigned char *p = malloc(1 << 16);
    uint64_t h = me;
    ssize_t n;
    /* Each a part of its own. */
    for (size_t at = me * 65536; at < size; at += 4 * 65536) {
        n = pread(fd, p, 65536, at);
        h = sum(h, p, n);
    }
    shares[me] = h;
    /* And one position for all, under a lock. */
    uint64_t all = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        n = read(shared, p, 1 << 16);
        if (n > 0) taken += n;
        pthread_mutex_unlock(&lock);
        if (n <= 0) break;
        all += sum(1, p, n);
    }
    free(p);
    close(fd);
    return (void *)(uintptr_t)all;
}

static void with_threads(void) {
    pthread_t t[4];
    uint64_t all = 0;
    shared = begin();
    for (size_t i = 0; i < 4; i++) pthread_create(&t[i], NULL, thread, (void *)i);
    for (size_t i = 0; i < 4; i++) {
        void *r;
        pthread_join(t[i], &r);
        all += (uintptr_t)r;
    }
    for (size_t i = 0; i < 4; i++) say("thread", shares[i], i);
    say("threads", all, taken);
    close(shared);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    path = argv[1];
    struct stat st;
    stat(path, &st);
    size = st.st_size;
    by_position("large", 1 << 20);
    by_position("usual", 1 << 15);
    by_position("odd", 12345);
    by_position("whole", size + 1);
    by_offset();
    into_several();
    into_a_wall();
    by_stdio();
    if (argc > 2)
        with_threads();
    else
        with_a_child();
    return 0;
}
