// What the kernels share: arguments, threads, synchronisation that is counted, random numbers, the result line.
//
// A kernel is a parallel program in the manner of the suites that the field measures with (SPLASH-2, PARSEC, Phoenix), written here
// from its algorithm. It is guest and benchmark at once:
//
//   KERNEL [-t THREADS] [-s small|medium|large|NUMBER] [-v] [-w]
//
// - `small` is for tests (less than 0.1 s), `medium` takes about a second of one core, `large` about five; a number is the size itself,
//   whose meaning each kernel's first comment tells.
// - It says one line, whose checksum follows from the size alone: not from the number of threads, nor from who was first. So sums are of
//   integers or of fixed-point numbers, or made in the order of an index.
// - It compares its result with a simple reference, and ends with GUEST_FAILED when they differ. What would take long is
//   compared in full at the small size, and in samples above it.
// - It has no data race.
// - With -v it says on standard error how often it synchronised: each of a lock and its unlock together, an arrival at a barrier, a wait for or
//   a signal to a condition variable, an atomic operation, a start and an end of a thread counts once.
// - With -w the calling thread only waits for the others, as in Phoenix; otherwise it does a part of the work.
#ifndef KERNEL_H
#define KERNEL_H

#include "guest.h"

#include <stdatomic.h>

#define MAX_THREADS 64
// Data of different threads lie this far apart.
#define CACHE_LINE 64
#define APART __attribute__((aligned(CACHE_LINE)))

// What -s takes beside numbers.
struct sizes {
    long small, medium, large;
};

static struct {
    int threads;
    long size;
    // The reference is compared in full.
    bool thorough;
    bool verbose;
    bool only_waits;
    int64_t begun;
    pthread_barrier_t barrier;
    void (*body)(int thread);
    // By threads that have ended.
    _Atomic uint64_t synchronised;
} kernel;

// How often this thread has synchronised.
static _Thread_local uint64_t synchronised_;

// An operation that synchronises, and counts once.
#define counted(operation) (synchronised_++, (operation))

static inline void lock(pthread_mutex_t *mutex) {
    ok(counted(pthread_mutex_lock(mutex)));
}

static inline void unlock(pthread_mutex_t *mutex) {
    ok(pthread_mutex_unlock(mutex));
}

static inline void wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    ok(counted(pthread_cond_wait(condition, mutex)));
}

static inline void wake_one(pthread_cond_t *condition) {
    ok(counted(pthread_cond_signal(condition)));
}

static inline void wake_all(pthread_cond_t *condition) {
    ok(counted(pthread_cond_broadcast(condition)));
}

// Waits until every thread of `in_parallel` is here.
static inline void barrier(void) {
    int result = counted(pthread_barrier_wait(&kernel.barrier));
    expect(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

__attribute__((noreturn)) GUEST_UNUSED static void kernel_usage(void) {
    fprintf(stderr, "usage: %s [-t THREADS] [-s small|medium|large|NUMBER] [-v] [-w]\n", program_invocation_short_name);
    exit(2);
}

static inline void kernel_begin(int argc, char **argv, struct sizes sizes) {
    kernel.begun = now_ns(CLOCK_MONOTONIC);
    kernel.threads = 2;
    kernel.size = sizes.small;
    for (int option; (option = getopt(argc, argv, "t:s:vw")) != -1;) {
        char *end = "";
        switch (option) {
        case 't':
            kernel.threads = strtol(optarg, &end, 10);
            break;
        case 's':
            if (!strcmp(optarg, "small")) {
                kernel.size = sizes.small;
            } else if (!strcmp(optarg, "medium")) {
                kernel.size = sizes.medium;
            } else if (!strcmp(optarg, "large")) {
                kernel.size = sizes.large;
            } else {
                kernel.size = strtol(optarg, &end, 10);
            }
            break;
        case 'v':
            kernel.verbose = true;
            break;
        case 'w':
            kernel.only_waits = true;
            break;
        default:
            kernel_usage();
        }
        if (*end) kernel_usage();
    }
    if (optind != argc || kernel.threads < 1 || kernel.threads > MAX_THREADS || kernel.size < 1) kernel_usage();
    kernel.thorough = kernel.size <= sizes.small;
}

GUEST_UNUSED static void *kernel_thread(void *number) {
    synchronised_ = 1;
    kernel.body((int)(intptr_t)number);
    atomic_fetch_add(&kernel.synchronised, synchronised_);
    return NULL;
}

// Runs `body(0)` to `body(threads - 1)` at once, the first of them by the calling thread, and waits for all.
static inline void in_parallel_of(int threads, void (*body)(int thread)) {
    pthread_t all[2 * MAX_THREADS + 2];
    expect(threads <= (int)(sizeof all / sizeof *all));
    kernel.body = body;
    ok(pthread_barrier_init(&kernel.barrier, NULL, threads));
    int first = kernel.only_waits ? 0 : 1;
    for (int i = first; i < threads; i++) all[i] = counted(start(kernel_thread, (void *)(intptr_t)i));
    if (first) body(0);
    for (int i = first; i < threads; i++) counted(finish(all[i]));
    ok(pthread_barrier_destroy(&kernel.barrier));
}

static inline void in_parallel(void (*body)(int thread)) {
    in_parallel_of(kernel.threads, body);
}

// Says the result, and is the end.
__attribute__((noreturn)) GUEST_UNUSED static void kernel_end(uint64_t checksum) {
    say("%s of size %ld: checksum %016lx\n", program_invocation_short_name, kernel.size, checksum);
    if (kernel.verbose) {
        uint64_t times = atomic_load(&kernel.synchronised) + synchronised_;
        int64_t ns = now_ns(CLOCK_MONOTONIC) - kernel.begun;
        fprintf(stderr, "synchronised %lu times in %ld us: %.0f a second\n", times, ns / 1000, times * 1e9 / ns);
    }
    exit(0);
}

// The part of 0..n that is one thread's own.
struct range {
    long from, to;
};

static inline struct range share_of(long n, int thread) {
    return (struct range){n * thread / kernel.threads, n * (thread + 1) / kernel.threads};
}

// Hands out pieces of work 0, 1, 2, ... to whoever comes.
struct work {
    pthread_mutex_t mutex;
    long next, count;
};

// The next piece, or -1 when all are taken.
static inline long take(struct work *work) {
    lock(&work->mutex);
    long piece = work->next < work->count ? work->next++ : -1;
    unlock(&work->mutex);
    return piece;
}

// The i-th number of a random series.
static inline uint64_t random_at(uint64_t series, uint64_t i) {
    return mix(mix(series * 0xa0761d6478bd642fu + 0x8ebc6af09c88c6e3u) + i);
}

// The same, evenly spread over 0 <= x < 1.
static inline double uniform_at(uint64_t series, uint64_t i) {
    return (random_at(series, i) >> 11) * 0x1p-53;
}

// Takes words into a checksum that depends on their order.
static inline uint64_t checksum_of(uint64_t checksum, const void *data, size_t bytes) {
    const unsigned char *from = (const unsigned char *)data;
    for (; bytes >= 8; bytes -= 8, from += 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        checksum = ((checksum << 5 | checksum >> 59) ^ word) * 0x9e3779b97f4a7c15u;
    }
    for (; bytes > 0; bytes--) checksum = ((checksum << 5 | checksum >> 59) ^ *from++) * 0x9e3779b97f4a7c15u;
    return checksum;
}

// A file of `bytes` bytes, mapped. `block` fills a part of it; the file repeats that part, so that making it takes little of the time.
static inline void *mapped_input(long bytes, void (*block)(unsigned char *part, long len), int protection, int flags) {
    enum { PART = 1 << 20 };
    int file = memfd_create("input", MFD_CLOEXEC);
    must(file);
    unsigned char *part = malloc(PART);
    expect(part != NULL);
    block(part, bytes < PART ? bytes : PART);
    for (long left = bytes; left > 0; left -= PART) {
        long len = left < PART ? left : PART;
        expect(write(file, part, len) == len);
    }
    free(part);
    void *input = mmap(NULL, bytes, protection, flags, file, 0);
    expect(input != MAP_FAILED);
    must(close(file));
    return input;
}

// Such a file that can be read and not written, as a program maps its input.
GUEST_UNUSED static const unsigned char *input_of(long bytes, void (*block)(unsigned char *part, long len)) {
    return (const unsigned char *)mapped_input(bytes, block, PROT_READ, MAP_SHARED);
}

// One that can be written to, which nobody else sees.
GUEST_UNUSED static char *own_input_of(long bytes, void (*block)(unsigned char *part, long len)) {
    return (char *)mapped_input(bytes, block, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

// Memory for `count` things of one size, all 0.
GUEST_UNUSED static void *room_for(size_t count, size_t size) {
    void *room = calloc(count, size);
    expect(room != NULL);
    return room;
}

#endif
