// SIZE pairs of lock and unlock a thread, of one mutex, with a single addition inside and nothing outside: what a lock costs that everybody wants.
#include "kernel.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t count;

static void body(int thread) {
    (void)thread;
    for (long i = 0; i < kernel.size; i++) {
        lock(&mutex);
        count++;
        unlock(&mutex);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){2000, 20000, 10000000});
    in_parallel(body);
    expect(count == (uint64_t)kernel.size * (uint64_t)kernel.threads);
    kernel_end(kernel.size);
}
