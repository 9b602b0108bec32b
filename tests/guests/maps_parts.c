// Maps parts of a large file in all the ways there are, and says sums of what it finds: private and shared, at offsets, beyond the file's end,
// with pages of its own, dropped and read again, moved, grown, and in a child. With `writes` it changes the file in the end, which mappings show.
// With `waits` it only maps half of the file, makes FILE.mapped, and looks at it, then at all, as soon as there is a file FILE.go.
// Usage: maps_parts FILE [threads|alone] [writes] | FILE waits
// run: /bin/bash
// run: /bin/bash threads
// run: /bin/bash alone
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static const char *path;
static size_t size;
static sigjmp_buf back;
static int threads, alone, writes, waits;

static uint64_t sum(const unsigned char *p, size_t n) {
    uint64_t h = 1;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void say(const char *what, const unsigned char *p, size_t n) {
    printf("%s %llu %zu\n", what, (unsigned long long)sum(p, n), n);
}

static void bus(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int begin(void) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) fail(path);
    return fd;
}

static unsigned char *map(int fd, size_t at, size_t len, int prot, int flags) {
    unsigned char *p = mmap(NULL, len, prot, flags, fd, at);
    if (p == MAP_FAILED) fail("mmap");
    return p;
}

/* Offsets are parts of the file, so that small ones do, too. */
static size_t part(int n) { return size / 16 * n & ~(size_t)(PAGE - 1); }

static void *thread(void *which) {
    int fd = begin(), n = (int)(intptr_t)which;
    uint64_t all = 0;
    for (int i = 0; i < 8; i++) {
        unsigned char *p = map(fd, part(2 * i + n % 2), PAGE * 8, PROT_READ, n % 2 ? MAP_SHARED : MAP_PRIVATE);
        all += sum(p, PAGE * 2);
        munmap(p, PAGE * 8);
    }
    close(fd);
    return (void *)(uintptr_t)all;
}

static void wait_and_look(int fd) {
    char name[4096];
    size_t half = size / 2 & ~(size_t)(PAGE - 1);
    unsigned char *all = map(fd, 0, half, PROT_READ, MAP_PRIVATE);
    snprintf(name, sizeof name, "%s.mapped", path);
    int told = open(name, O_WRONLY | O_CREAT, 0600);
    if (told < 0) fail(name);
    close(told);
    snprintf(name, sizeof name, "%s.go", path);
    while (access(name, F_OK) != 0) usleep(1000);
    say("half", all, half);
    all = mremap(all, half, size, MREMAP_MAYMOVE);
    if (all == MAP_FAILED) fail("mremap");
    say("all", all, size);
}

int main(int argc, char **argv) {
    path = argv[1];
    for (int i = 2; i < argc; i++) {
        threads |= strcmp(argv[i], "threads") == 0;
        alone |= strcmp(argv[i], "alone") == 0;
        writes |= strcmp(argv[i], "writes") == 0;
        waits |= strcmp(argv[i], "waits") == 0;
    }
    struct stat st;
    if (stat(path, &st) != 0) fail(path);
    size = st.st_size;
    int fd = begin();
    if (waits) {
        wait_and_look(fd);
        return 0;
    }

    unsigned char *own = map(fd, part(1), 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    say("private", own, 4 * PAGE);
    own[PAGE + 5] ^= 0x55;
    say("written", own, 4 * PAGE);
    unsigned char *shared = map(fd, part(1), 8 * PAGE, PROT_READ, MAP_SHARED);
    say("shared", shared, 8 * PAGE);

    /* What was written is gone. */
    unsigned char *dropped = map(fd, part(2), 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    memset(dropped, 7, 2 * PAGE);
    say("filled", dropped, 4 * PAGE);
    if (madvise(dropped, PAGE, MADV_DONTNEED) != 0) fail("madvise");
    say("dropped", dropped, 4 * PAGE);
    if (mprotect(dropped, PAGE, PROT_READ) != 0) fail("mprotect");

    /* Moved, and grown to where nobody has mapped the file. */
    unsigned char *room = mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *moved = map(fd, part(3), 4 * PAGE, PROT_READ, MAP_PRIVATE);
    moved = mremap(moved, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    if (moved != room) fail("mremap");
    say("moved", moved, 4 * PAGE);
    close(fd);
    moved = mremap(moved, 4 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) fail("mremap");
    say("grown", moved, 32 * PAGE);
    unsigned char *again = mremap(shared, 0, 16 * PAGE, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) fail("mremap");
    say("again", again, 16 * PAGE);

    /* The last page is cut off, and behind it there is nothing. */
    fd = begin();
    size_t last = (size - 1) & ~(size_t)(PAGE - 1);
    unsigned char *end = map(fd, last, 4 * PAGE, PROT_READ, MAP_PRIVATE);
    say("end", end, PAGE);
    struct sigaction action = {.sa_handler = bus, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    if (sigsetjmp(back, 1) == 0) {
        say("beyond", end + PAGE, 1);
    } else {
        printf("nothing beyond\n");
    }
    unsigned char *far = map(fd, last + 64 * PAGE, PAGE, PROT_READ, MAP_SHARED);
    if (sigsetjmp(back, 1) == 0) {
        say("far", far, 1);
    } else {
        printf("nothing far\n");
    }

    if (threads) {
        pthread_t all[4];
        for (intptr_t i = 0; i < 4; i++) pthread_create(&all[i], NULL, thread, (void *)i);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(all[i], &result);
            printf("thread %llu\n", (unsigned long long)(uintptr_t)result);
        }
    } else if (!alone) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            say("inherited", own, 4 * PAGE);
            say("of child", map(fd, part(5), 16 * PAGE, PROT_READ, MAP_PRIVATE), 16 * PAGE);
            own[0] ^= 1;
            fflush(stdout);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child) fail("waitpid");
        printf("child %d\n", status);
        say("of parent", own, 4 * PAGE);
    }
    if (writes) {
        int out = open(path, O_WRONLY);
        if (out < 0) fail(path);
        static const unsigned char text[] = "something else";
        if (pwrite(out, text, sizeof text, part(1) + 2 * PAGE) != sizeof text) fail("pwrite");
        say("changed", shared, 8 * PAGE);
        say("private after", own, 4 * PAGE);
        say("moved after", moved, 32 * PAGE);
        unsigned char *other = map(fd, part(9), 8 * PAGE, PROT_READ, MAP_SHARED);
        say("other", other, 8 * PAGE);
        if (pwrite(out, text, sizeof text, part(9)) != sizeof text) fail("pwrite");
        say("other after", other, 8 * PAGE);
        close(out);
        say("later", map(fd, part(11), 8 * PAGE, PROT_READ, MAP_PRIVATE), 8 * PAGE);
    }
    return 0;
}
