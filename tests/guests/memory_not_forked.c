// A thread computes, without any call, on memory that no child of the process gets (MADV_DONTFORK), and comes to a new page of it each time, while another one says how far it is.
// run: 20000
#include "guest.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };
static uint64_t *memory;
static long pages;
static volatile long at;
static volatile int over;

static void *computes(void *unused) {
    for (long i = 0; i < pages; i++) {
        uint64_t value = i;
        for (int n = 0; n < 2000; n++) value = mix(value);
        memory[i * WORDS + i % WORDS] = value;
        at = i;
    }
    over = 1;
    return unused;
}

int main(int argc, char **argv) {
    pages = number(argc, argv, 1, 20000);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED);
    must(madvise(memory, pages * PAGE, MADV_DONTFORK));
    int tells = must(open("/dev/null", O_WRONLY));
    pthread_t thread = start(computes, NULL);
    while (!over) {
        dprintf(tells, "at %ld\n", at);
        usleep(2000);
    }
    finish(thread);
    uint64_t sum = 0;
    for (long i = 0; i < pages; i++) {
        uint64_t value = i;
        for (int n = 0; n < 2000; n++) value = mix(value);
        expect(memory[i * WORDS + i % WORDS] == value);
        sum = mix(sum + value);
    }
    say("%lu\n", (unsigned long)sum);
}
