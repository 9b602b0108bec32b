// SIZE pairs of lock and unlock of one mutex that all threads share, with a little work inside and more outside: about a million pairs a second and thread.
#include "kernel.h"

#define WORK_INSIDE 10
#define WORK_OUTSIDE 850
#define SERIES 1

static APART pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t count, sum;

static void body(int thread) {
    struct range own = share_of(kernel.size, thread);
    for (long i = own.from; i < own.to; i++) {
        uint64_t number = random_at(SERIES, i);
        burn(WORK_OUTSIDE);
        lock(&mutex);
        count++;
        sum += number;
        burn(WORK_INSIDE);
        unlock(&mutex);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){10000, 1000000, 5000000});
    in_parallel(body);
    uint64_t wanted = 0;
    for (long i = 0; i < kernel.size; i++) wanted += random_at(SERIES, i);
    expect(count == (uint64_t)kernel.size && sum == wanted);
    kernel_end(sum);
}
