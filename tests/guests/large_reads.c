// A thread reads a file in pieces of some megabytes, while others compute and lock: more in one call than threads usually say in a second.
// run: 6 6
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int over;
static uint64_t sum;

static void *computes(void *unused) {
    while (!over) {
        ok(pthread_mutex_lock(&lock));
        sum++;
        ok(pthread_mutex_unlock(&lock));
    }
    return unused;
}

int main(int argc, char **argv) {
    size_t bytes = number(argc, argv, 1, 6) << 20;
    long rounds = number(argc, argv, 2, 6);
    int file = memfd_create("large", 0);
    must(file);
    unsigned char *memory = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) memory[i] = mix(i / 4096) + i;
    expect(must(write(file, memory, bytes)) == (long)bytes);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = start(computes, NULL);
    uint64_t read_so_far = 0;
    for (long round = 0; round < rounds; round++) {
        memset(memory, 0, bytes);
        must(lseek(file, 0, SEEK_SET));
        for (size_t at = 0; at < bytes;) {
            long n = must(read(file, memory + at, bytes - at));
            expect(n > 0);
            at += n;
        }
        for (size_t i = 0; i < bytes; i += 512) read_so_far = mix(read_so_far + memory[i]);
    }
    over = 1;
    for (int i = 0; i < 2; i++) finish(threads[i]);
    say("%lu\n", (unsigned long)read_so_far);
}
