// Threads map files and shared memory, and unmap, replace, move and cut off such mappings, in between computing and locking: none of that can be undone.
// run: 3 40
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static int rounds, fd;

static void add(long n) {
    ok(pthread_mutex_lock(&lock));
    sum += n;
    ok(pthread_mutex_unlock(&lock));
}

static long look(const unsigned char *p, long n) {
    long all = 0;
    for (int times = 0; times < 40; times++)
        for (long i = 0; i < n; i += 64) all += p[i];
    return all;
}

static void *body(void *p) {
    long me = (long)p;
    for (int i = 0; i < rounds; i++) {
        unsigned char *file = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        expect(file != MAP_FAILED);
        add(look(file, 4 * 4096) & 0xff);
        file[4096] = (unsigned char)me;
        // A hole, something else in the place of a page, and an end.
        must(munmap(file + 2 * 4096, 4096));
        add(i);
        expect(mmap(file + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == file + 4096);
        file[4096] = (unsigned char)i;
        add(look(file, 2 * 4096) & 0xff);
        unsigned char *moved = mremap(file + 3 * 4096, 4096, 8192, MREMAP_MAYMOVE);
        expect(moved != MAP_FAILED);
        add(moved[8]);
        must(munmap(file, 2 * 4096));
        add(me);
        must(munmap(moved, 8192));
        add(look((unsigned char *)&sum, 8) & 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 3;
    rounds = argc > 2 ? atoi(argv[2]) : 40;
    must(fd = open("/proc/self/exe", O_RDONLY));
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < count; i++) finish(threads[i]);
    printf("%d threads, %d rounds: %ld\n", count, rounds, sum);
}
