// SIZE bytes of text, packed without the pieces that were there before, in the manner of PARSEC: threads take blocks, cut them where their content says,
// look each piece up in a table that all share, under a lock, and pack what is new into memory that they allocate.
#include "kernel.h"

#define BLOCK 262144
#define MIN_PIECE 1024
#define MAX_PIECE 16384
#define BUCKETS 16384
#define SERIES 1

struct piece {
    struct piece *next;
    uint64_t hash;
    long len, packed_len, count;
    unsigned char *packed;
};

static long n;
static const unsigned char *text;
static struct piece *table[BUCKETS];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct work blocks = {PTHREAD_MUTEX_INITIALIZER, 0, 0};

static void fill(unsigned char *part, long len) {
    for (long i = 0; i < len; i++) part[i] = random_at(SERIES, i / 3 % 100000) % 7 + 'a' + (i % 3 == 0);
}

// Runs and single bytes.
static long pack(unsigned char *to, const unsigned char *from, long len) {
    long out = 0;
    for (long i = 0; i < len;) {
        long run = 1;
        while (i + run < len && run < 255 && from[i + run] == from[i]) run++;
        to[out++] = run;
        to[out++] = from[i];
        i += run;
    }
    return out;
}

static long cut(const unsigned char *from, long left) {
    uint32_t rolling = 0;
    long most = left < MAX_PIECE ? left : MAX_PIECE;
    for (long i = 0; i < most; i++) {
        rolling = (rolling << 1) + (uint32_t)mix(from[i]);
        if (i >= MIN_PIECE && (rolling & 0xfff) == 0) return i + 1;
    }
    return most;
}

static void take_in(const unsigned char *from, long len) {
    uint64_t hash = checksum_of(len, from, len);
    lock(&table_lock);
    struct piece *p = table[hash % BUCKETS];
    while (p && (p->hash != hash || p->len != len)) p = p->next;
    bool is_new = p == NULL;
    if (is_new) {
        p = room_for(1, sizeof *p);
        p->hash = hash, p->len = len;
        p->next = table[hash % BUCKETS];
        table[hash % BUCKETS] = p;
    }
    p->count++;
    unlock(&table_lock);
    if (!is_new) return;
    unsigned char *packed = room_for(2, len);
    long packed_len = pack(packed, from, len);
    lock(&table_lock);
    p->packed = packed, p->packed_len = packed_len;
    unlock(&table_lock);
}

static void body(int thread) {
    (void)thread;
    for (long block; (block = take(&blocks)) >= 0;) {
        long at = block * BLOCK, end = at + BLOCK < n ? at + BLOCK : n;
        while (at < end) {
            long len = cut(text + at, end - at);
            take_in(text + at, len);
            at += len;
        }
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){1500000, 60000000, 300000000});
    n = kernel.size;
    text = input_of(n, fill);
    blocks.count = (n + BLOCK - 1) / BLOCK;
    in_parallel(body);
    uint64_t sum = 0;
    long bytes = 0;
    for (int b = 0; b < BUCKETS; b++) {
        for (struct piece *p = table[b]; p; p = p->next) {
            bytes += p->len * p->count;
            long unpacked = 0;
            for (long i = 0; i < p->packed_len; i += 2) unpacked += p->packed[i];
            expect(unpacked == p->len);
            sum += mix(p->hash + p->count + checksum_of(0, p->packed, p->packed_len));
        }
    }
    expect(bytes == n);
    kernel_end(sum);
}
