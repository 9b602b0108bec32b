// Threads that write to one mapped file, by system calls and through the mapping, while others read what they find there.
// run: 4 400
#include "guest.h"
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 16 };
static volatile uint64_t *shared;
static const volatile uint64_t *private_;
static int fd;
static long rounds;

static void *work(void *argument) {
    uint64_t id = (uint64_t)argument, sum = id;
    for (long i = 0; i < rounds; i++) {
        sum = mix(sum + shared[sum % (PAGES * PAGE / 8)] + private_[(sum >> 20) % (PAGES * PAGE / 8)]);
        off_t at = sum % (PAGES * PAGE / 8) * 8;
        switch (sum >> 40 & 3) {
        case 0: expect(pwrite(fd, &sum, 8, at) == 8); break;
        case 1: shared[at / 8] += sum; break;
        case 2: {
            struct iovec two[] = {{&sum, 4}, {(char *)&sum + 4, 4}};
            expect(pwritev(fd, two, 2, at) == 8);
            break;
        }
        case 3: {
            uint64_t found;
            expect(pread(fd, &found, 8, at) == 8);
            sum += found;
        }
        }
    }
    return (void *)sum;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 400);
    fd = must(memfd_create("shared", 0));
    must(ftruncate(fd, PAGES * PAGE));
    private_ = (const volatile uint64_t *)must(mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    shared = (volatile uint64_t *)must(mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    pthread_t thread[16];
    for (long i = 0; i < threads; i++) thread[i] = start(work, (void *)(i + 1));
    uint64_t sum = 0;
    for (long i = 0; i < threads; i++) sum += (uint64_t)finish(thread[i]);
    say("%lu %lu\n", sum, hash_bytes((const void *)shared, PAGES * PAGE));
}
