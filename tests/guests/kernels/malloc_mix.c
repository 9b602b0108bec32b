// SIZE blocks of memory of many sizes: each is allocated by one thread, written, handed to the next thread through a list behind a lock, read and
// freed there. Some are enlarged on the way, some aligned, a few are large enough to be mapped.
#include "kernel.h"

#define SERIES 1

struct block {
    struct block *next;
    uint64_t number, length;
    uint8_t bytes[];
};

static struct APART {
    pthread_mutex_t mutex;
    struct block *first;
} lists[MAX_THREADS];
static struct APART {
    uint64_t sum, blocks;
} results[MAX_THREADS];

// Most are small, one in 1024 is not.
static uint64_t length_of(uint64_t number) {
    uint64_t r = random_at(SERIES, number);
    return r % 1024 == 0 ? 100000 + (r >> 10) % 100000 : (r >> 10) % (16 << (r >> 32) % 8);
}

static uint64_t content_of(uint64_t number, uint64_t length) {
    return length * 3 + mix(number) % 251;
}

static struct block *make(uint64_t number) {
    uint64_t length = length_of(number), size = sizeof(struct block) + length;
    struct block *block;
    switch (number % 8) {
    case 0:
        block = calloc(1, size);
        break;
    case 1:
        block = aligned_alloc(64, (size + 63) / 64 * 64);
        expect((uintptr_t)block % 64 == 0);
        break;
    case 2:
        block = malloc(sizeof *block);
        expect(block != NULL);
        block->number = number;
        block = realloc(block, size);
        expect(block != NULL && block->number == number);
        break;
    default:
        block = malloc(size);
    }
    expect(block != NULL);
    block->number = number;
    block->length = length;
    memset(block->bytes, content_of(number, length), length);
    return block;
}

static void hand_to(int thread, struct block *block) {
    lock(&lists[thread].mutex);
    block->next = lists[thread].first;
    lists[thread].first = block;
    unlock(&lists[thread].mutex);
}

static void consume(int thread) {
    lock(&lists[thread].mutex);
    struct block *block = lists[thread].first;
    lists[thread].first = NULL;
    unlock(&lists[thread].mutex);
    for (struct block *next; block; block = next) {
        next = block->next;
        expect(block->length == length_of(block->number));
        uint8_t content = content_of(block->number, block->length);
        for (uint64_t i = 0; i < block->length; i += 16) expect(block->bytes[i] == content);
        results[thread].sum += mix(block->number) ^ block->length;
        results[thread].blocks++;
        free(block);
    }
}

static void body(int thread) {
    struct range own = share_of(kernel.size, thread);
    ok(pthread_mutex_init(&lists[thread].mutex, NULL));
    barrier();
    for (long i = own.from; i < own.to; i++) {
        hand_to((thread + 1) % kernel.threads, make(i));
        if (i % 4 == 3) consume(thread);
    }
    barrier();
    consume(thread);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){10000, 2500000, 12500000});
    in_parallel(body);
    uint64_t sum = 0, blocks = 0, wanted = 0;
    for (int t = 0; t < kernel.threads; t++) {
        sum += results[t].sum;
        blocks += results[t].blocks;
    }
    for (long i = 0; i < kernel.size; i++) wanted += mix(i) ^ length_of(i);
    expect(blocks == (uint64_t)kernel.size && sum == wanted);
    kernel_end(sum);
}
