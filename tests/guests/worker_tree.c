// A tree of processes any of which may be killed at any time, and the others go on to their end: workers of two threads each report
// through a pipe and race in shared memory; the last of them is a program of its own.
//   worker_tree [ROUNDS]
// flags: -Wno-unused-result
#include "guest.h"
#include <sys/wait.h>

enum { WORKERS = 3, THREADS = 2 };

struct shared {
    _Atomic uint64_t count;
    // Written all the time, so that a worker dies in the middle of it.
    volatile uint64_t last[1024];
};

static struct shared *shared;
static long rounds;
static int out;

static void *work(void *argument) {
    for (long i = 0; i < rounds; i++) {
        uint64_t count = ++shared->count;
        for (int k = 0; k < 20000; k++) shared->last[k % 1024] = mix(shared->last[(k + 1) % 1024] + count + k);
        char line[128];
        int n = snprintf(line, sizeof line, "%s round %ld count %lu\n", (char *)argument, i, (unsigned long)count);
        // Nobody may be left to read it.
        if (write(out, line, n) != n) _exit(3);
    }
    return NULL;
}

static void work_in_threads(const char *who) {
    char names[THREADS][64];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "%s thread %d", who, i);
        threads[i] = start(work, names[i]);
    }
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 20);
    if (argc > 2) {
        int fd = number(argc, argv, 2, 0);
        out = number(argc, argv, 3, 0);
        shared = must(mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        work_in_threads("the other program");
        return 0;
    }
    int fd = must(memfd_create("shared", 0)), ends[2];
    must(ftruncate(fd, sizeof *shared));
    shared = must(mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    must(pipe(ends));
    for (int i = 0; i < WORKERS; i++) {
        if (must(fork()) != 0) continue;
        close(ends[0]);
        out = ends[1];
        char text[3][32];
        snprintf(text[0], sizeof text[0], "%ld", rounds);
        snprintf(text[1], sizeof text[1], "%d", fd);
        snprintf(text[2], sizeof text[2], "%d", out);
        if (i == WORKERS - 1) {
            execl("/proc/self/exe", argv[0], text[0], text[1], text[2], NULL);
            _exit(GUEST_FAILED);
        }
        snprintf(text[0], sizeof text[0], "worker %d", i);
        work_in_threads(text[0]);
        _exit(0);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    expect(in != NULL);
    char line[256];
    while (fgets(line, sizeof line, in)) say("%s", line);
    int status;
    while (wait(&status) > 0) {
        // In the order in which they ended.
        say("a worker ended with %#x\n", status);
    }
    say("count %lu, %#lx\n", (unsigned long)shared->count, (unsigned long)hash_bytes((void *)shared->last, sizeof shared->last));
    return 0;
}
