// Large blocks from malloc, grown, shrunk, freed, from several threads at once; a large sparse reservation.
// run: 48
#include "guest.h"
#include <malloc.h>

static long megabytes;

static void *body(void *p) {
    uint64_t seed = (uintptr_t)p, hash = 0;
    char *blocks[64] = {0};
    size_t sizes[64] = {0};
    for (int i = 0; i < 4000; i++) {
        seed = mix(seed + i);
        int slot = seed % 64;
        size_t size = 1 + (seed >> 8) % (i % 100 == 0 ? megabytes << 14 : 3000);
        if (blocks[slot] && seed & 64) {
            hash = mix(hash + blocks[slot][sizes[slot] - 1]);
            free(blocks[slot]);
            blocks[slot] = NULL;
        } else {
            blocks[slot] = (char *)realloc(blocks[slot], size);
            expect(blocks[slot] != NULL);
            sizes[slot] = size;
            blocks[slot][size - 1] = (char)i;
            hash = mix(hash + (uintptr_t)blocks[slot]);
        }
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return (void *)hash;
}

int main(int argc, char **argv) {
    megabytes = number(argc, argv, 1, 48);
    size_t length = megabytes << 20;
    char *big = (char *)malloc(length);
    expect(big != NULL);
    for (size_t i = 0; i < length; i += 4096) big[i] = (char)mix(i);
    big = (char *)realloc(big, length * 2);
    expect(big != NULL && big[4096] == (char)mix(4096));
    say("block at 0x%lx\n", (unsigned long)big);
    free(big);
    char *zeros = (char *)calloc(length, 1);
    expect(zeros && zeros[length - 1] == 0);
    free(zeros);
    void *aligned;
    ok(posix_memalign(&aligned, 1 << 16, 100000));
    expect(((uintptr_t)aligned & 0xffff) == 0);
    free(aligned);
    char *sparse = (char *)must(mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t at = 0; at < 1ul << 36; at += 1ul << 32) sparse[at + 123] = 1;
    say("sparse at 0x%lx\n", (unsigned long)sparse);
    must(munmap(sparse, 1ul << 36));
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < 4; i++) say("addresses: %lu\n", (unsigned long)finish(threads[i]));
    malloc_trim(0);
}
