// SIZE blocks of bytes on their way through four stages, in the manner of PARSEC's dedup: made, cut into chunks and hashed, compressed, put in
// order again. The stages in the middle have THREADS threads each, the first and the last one. Between them are bounded queues, each of one mutex and two
// condition variables.
#include "kernel.h"

#define BLOCK 4096
#define ROOM 16
#define TABLE 1024
#define MOST_MATCH 127
#define LEAST_MATCH 4
#define SERIES 1

struct item {
    struct item *later;
    long number;
    uint64_t hash;
    int packed_length;
    uint8_t bytes[BLOCK], packed[2 * BLOCK];
};

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t not_empty, not_full;
    struct item *items[ROOM];
    int first, count, producers;
} APART;

static long n;
static struct queue made, hashed, packed;
static uint64_t result;

static void queue_begin(struct queue *queue, int producers) {
    ok(pthread_mutex_init(&queue->mutex, NULL));
    ok(pthread_cond_init(&queue->not_empty, NULL));
    ok(pthread_cond_init(&queue->not_full, NULL));
    queue->producers = producers;
}

static void put(struct queue *queue, struct item *item) {
    lock(&queue->mutex);
    while (queue->count == ROOM) wait_for(&queue->not_full, &queue->mutex);
    queue->items[(queue->first + queue->count++) % ROOM] = item;
    wake_one(&queue->not_empty);
    unlock(&queue->mutex);
}

// The next item; NULL when there will be none any more.
static struct item *get(struct queue *queue) {
    struct item *item = NULL;
    lock(&queue->mutex);
    while (queue->count == 0 && queue->producers > 0) wait_for(&queue->not_empty, &queue->mutex);
    if (queue->count > 0) {
        item = queue->items[queue->first];
        queue->first = (queue->first + 1) % ROOM;
        queue->count--;
        wake_one(&queue->not_full);
    }
    unlock(&queue->mutex);
    return item;
}

// A producer has put its last item.
static void end(struct queue *queue) {
    lock(&queue->mutex);
    if (--queue->producers == 0) wake_all(&queue->not_empty);
    unlock(&queue->mutex);
}

// Bytes with repetitions.
static void make(long number, uint8_t *bytes) {
    for (int i = 0, k = 0; i < BLOCK; k++) {
        uint64_t r = random_at(SERIES, number * BLOCK + k);
        int length = 8 + r % 24, back = 1 + (r >> 8) % 512;
        for (int j = 0; j < length && i < BLOCK; j++, i++) {
            bytes[i] = back <= i && r >> 62 ? bytes[i - back] : (uint8_t)random_at(SERIES + 1, r + j);
        }
    }
}

// Ends a chunk where a rolling hash says so; the hash of all chunks' hashes.
static uint64_t hash_chunks(const uint8_t *bytes) {
    uint64_t rolling = 0, chunk = 0, all = 0;
    for (int i = 0; i < BLOCK; i++) {
        rolling = (rolling << 1) + mix(bytes[i]);
        chunk = (chunk ^ bytes[i]) * 0x100000001b3u;
        if ((rolling & 0xff) == 0xff || i == BLOCK - 1) {
            all = mix(all ^ chunk);
            chunk = 0;
        }
    }
    return all;
}

static uint32_t four_at(const uint8_t *bytes) {
    uint32_t four;
    memcpy(&four, bytes, sizeof four);
    return four;
}

// A byte below 128: so many literal bytes follow, less one. Above: copy (byte & 127) bytes from as far back as the next two bytes say.
static int pack(const uint8_t *bytes, uint8_t *to) {
    int16_t last[TABLE];
    int length = 0, literals = -1;
    memset(last, -1, sizeof last);
    for (int i = 0; i < BLOCK;) {
        int match = 0, from = 0;
        if (i + LEAST_MATCH <= BLOCK) {
            int16_t *slot = &last[mix(four_at(bytes + i)) % TABLE];
            from = *slot;
            *slot = i;
            while (from >= 0 && i + match < BLOCK && match < MOST_MATCH && bytes[from + match] == bytes[i + match]) match++;
        }
        if (match >= LEAST_MATCH) {
            to[length++] = 128 | match;
            to[length++] = (i - from) & 0xff;
            to[length++] = (i - from) >> 8;
            literals = -1;
            i += match;
        } else {
            if (literals < 0 || to[literals] == 127) {
                literals = length++;
                to[literals] = 0;
            } else {
                to[literals]++;
            }
            to[length++] = bytes[i++];
        }
    }
    return length;
}

static void unpack(const uint8_t *from, int length, uint8_t *bytes) {
    int i = 0;
    for (int at = 0; at < length;) {
        int what = from[at++];
        if (what < 128) {
            memcpy(bytes + i, from + at, what + 1);
            at += what + 1;
            i += what + 1;
        } else {
            int back = from[at] | from[at + 1] << 8;
            at += 2;
            for (int j = 0; j < (what & 127); j++, i++) bytes[i] = bytes[i - back];
        }
    }
    expect(i == BLOCK);
}

static void first_stage(void) {
    for (long number = 0; number < n; number++) {
        struct item *item = malloc(sizeof *item);
        expect(item != NULL);
        item->number = number;
        make(number, item->bytes);
        put(&made, item);
    }
    end(&made);
}

static void hashing_stage(void) {
    for (struct item *item; (item = get(&made));) {
        item->hash = hash_chunks(item->bytes);
        put(&hashed, item);
    }
    end(&hashed);
}

static void packing_stage(void) {
    for (struct item *item; (item = get(&hashed));) {
        item->packed_length = pack(item->bytes, item->packed);
        put(&packed, item);
    }
    end(&packed);
}

static void check(const struct item *item) {
    uint8_t reference[BLOCK], unpacked[BLOCK];
    make(item->number, reference);
    unpack(item->packed, item->packed_length, unpacked);
    expect(memcmp(reference, unpacked, BLOCK) == 0 && item->hash == hash_chunks(reference));
}

// Puts the items in order again: those that came before their turn wait in a list, which is short unless a thread is held up.
static void last_stage(void) {
    struct item *waiting = NULL;
    long next = 0;
    for (struct item *item; (item = get(&packed));) {
        struct item **at = &waiting;
        while (*at && (*at)->number < item->number) at = &(*at)->later;
        item->later = *at;
        *at = item;
        while ((item = waiting) && item->number == next) {
            waiting = item->later;
            result = checksum_of(mix(result ^ item->hash), item->packed, item->packed_length);
            if (kernel.thorough || next % 32 == 0) check(item);
            free(item);
            next++;
        }
    }
    expect(next == n && waiting == NULL);
}

static void body(int thread) {
    if (thread == 0) {
        last_stage();
    } else if (thread == 1) {
        first_stage();
    } else if (thread < 2 + kernel.threads) {
        hashing_stage();
    } else {
        packing_stage();
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){300, 22000, 110000});
    n = kernel.size;
    queue_begin(&made, 1);
    queue_begin(&hashed, kernel.threads);
    queue_begin(&packed, kernel.threads);
    in_parallel_of(2 + 2 * kernel.threads, body);
    kernel_end(result);
}
