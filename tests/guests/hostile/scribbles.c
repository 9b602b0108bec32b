// Threads take turns at a mutex, make calls and allocate, while one of them writes random bytes into the memory that the program shares with its
// recorder.
//
//   scribbles SEED BASE LEN [BASE LEN]...
//
// Each BASE and LEN is a stretch of that memory. Those that are not there natively are left out. Where BASE is 0, LEN is the size and alignment of the
// chunks that malloc takes blocks from, and it is a chunk of a thread's.
#include "../guest.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static long counter;
static volatile int over;
static char *volatile blocks[3];

static uint64_t state;
static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void *works(void *p) {
    int fds[2];
    if (pipe(fds)) return p;
    for (int i = 0; i < 400 && !over; i++) {
        char c = 'x';
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_cond_signal(&turn);
        pthread_mutex_unlock(&mutex);
        if (write(fds[1], &c, 1) != 1 || read(fds[0], &c, 1) != 1) break;
        free(blocks[(long)p]);
        blocks[(long)p] = malloc(1 + i * 7);
        if (i % 100 == 99) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            if (child > 0) waitpid(child, NULL, 0);
        }
    }
    return p;
}

int main(int argc, char **argv) {
    state = strtoul(argv[1], NULL, 0);
    int stretches = (argc - 2) / 2;
    pthread_t all[3];
    for (int i = 0; i < 3; i++) pthread_create(&all[i], NULL, works, (void *)(long)i);
    for (int n = 0; n < 60; n++) {
        usleep(next() % 1000);
        int which = next() % stretches;
        char *base = (char *)strtoul(argv[2 + 2 * which], NULL, 0);
        unsigned long len = strtoul(argv[3 + 2 * which], NULL, 0);
        if (!base) base = (char *)((uintptr_t)blocks[next() % 3] & -len);
        // One in two near the beginning, where the words are that everybody uses.
        if (next() % 2 && len > 8192) len = 8192;
        char *at = base + next() % len / 4 * 4;
        unsigned long bytes = 1 + next() % (next() % 4 ? 8 : 256);
        unsigned char there;
        if (mincore((void *)((uintptr_t)at & -4096), 4096, &there)) continue;
        if (mincore((void *)(((uintptr_t)at + bytes) & -4096), 4096, &there)) continue;
        int small = next() % 2;
        for (unsigned long i = 0; i < bytes; i++) at[i] = small ? (i % 4 ? 0 : next() % 5) : next();
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(all[i], NULL);
    say("counted %ld\n", counter);
}
