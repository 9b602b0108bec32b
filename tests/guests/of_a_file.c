// Kernels of Phoenix and PARSEC whose input is a file: threads read it in pieces by offset, TIMES times, and compute: each its part, in dedup whoever comes. What
// is said follows from the file alone.
//   of_a_file histogram|linear_regression|string_match|reverse_index|dedup FILE [THREADS [TIMES]]
// flags: -O2
// run: histogram /bin/bash
// run: linear_regression /bin/bash
// run: string_match /bin/bash
// run: reverse_index /bin/bash
// run: dedup /bin/bash
#include "guest.h"

#define MOST 64
#define APART __attribute__((aligned(64)))
// A word, or a link, that begins in a piece is read to its end, up to so many bytes; and the byte before a piece is read as well.
#define BEHIND 64
// A piece is read to so many bytes behind the beginning of a line of the cache, as many before it as bytes of the piece before are read. Where memory lies one
// to thirty bytes further on in its page than in the file's, some processors copy it at a third of the speed: that would be the allocator's luck.
#define BEFORE 64

struct state;

struct kernel {
    const char *name;
    // Bytes that are read at a time.
    long piece;
    // Pieces go to whoever comes.
    bool queue;
    // `text` is a piece of `len` bytes; one byte before it and `behind` after it can be looked at.
    void (*take_in)(struct state *own, const unsigned char *text, long len, long behind, long number);
    // Takes what a thread has found into what all have.
    void (*merge)(struct state *own);
};

static const struct kernel *kernel;
static int fd;
static long size, pieces, times, threads, handed_out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t result;

// What a thread has, each kernel its own.
struct state {
    uint64_t counts[3][256];
    struct sums {
        int64_t n, x, y, xx, yy, xy;
    } sums;
    int64_t found[4];
    int table[1 << 14];
    unsigned char *packed;
} APART;

// Histogram: how often each brightness of three colours is there.
static void count_colours(struct state *own, const unsigned char *text, long len, long behind, long number) {
    (void)behind;
    long colour = number * kernel->piece % 3;
    for (long i = 0; i < len; i++) {
        own->counts[colour][text[i]]++;
        colour = colour == 2 ? 0 : colour + 1;
    }
}

static void merge_colours(struct state *own) {
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++) result += own->counts[c][i] * mix(c * 256 + i);
    }
}

// Linear regression: the sums of points of two bytes.
static void add_points(struct state *own, const unsigned char *text, long len, long behind, long number) {
    (void)behind, (void)number;
    struct sums s = own->sums;
    for (long i = 0; i + 1 < len; i += 2) {
        int64_t x = text[i], y = text[i + 1];
        s.n++, s.x += x, s.y += y, s.xx += x * x, s.yy += y * y, s.xy += x * y;
    }
    own->sums = s;
}

static void merge_points(struct state *own) {
    struct sums *s = &own->sums;
    result += mix(1) * s->n + mix(2) * s->x + mix(3) * s->y + mix(4) * s->xx + mix(5) * s->yy + mix(6) * s->xy;
}

// String match: each word is enciphered, and compared with four.
static bool in_word(unsigned char c) {
    return c >= 'a' && c <= 'z';
}

static void match_words(struct state *own, const unsigned char *text, long len, long behind, long number) {
    static const char *const wanted[4] = {"be", "word", "file", "it"};
    uint64_t keys[4] = {0};
    for (int k = 0; k < 4; k++) memcpy(&keys[k], wanted[k], strlen(wanted[k]));
    long at = 0, end = len + behind;
    bool inside = number > 0 && in_word(text[-1]);
    while (inside && at < end && in_word(text[at])) at++;
    while (at < len) {
        if (!in_word(text[at])) {
            at++;
            continue;
        }
        uint64_t word = 0;
        long letters = 0;
        for (; at < end && in_word(text[at]); at++, letters++) word |= (uint64_t)text[at] << (8 * letters % 64);
        uint64_t enciphered = mix(word ^ 0x5a5a);
        for (int k = 0; k < 4; k++) own->found[k] += letters < 8 && enciphered == mix(keys[k] ^ 0x5a5a);
    }
}

static void merge_words(struct state *own) {
    for (int k = 0; k < 4; k++) result += own->found[k] * mix(k + 1);
}

// Reverse index: which pieces have which links, in an index of all, under one lock. A link is a number of one to three digits that ends a line.
struct mention {
    struct mention *next;
    long piece;
};

static struct target {
    struct mention *mentions;
    long count;
} targets[1000];

static void find_links(struct state *own, const unsigned char *text, long len, long behind, long number) {
    (void)own, (void)behind;
    for (long end = 0; end < len; end++) {
        if (text[end] != '\n') continue;
        long at = end, value = 0, digit = 1;
        for (; at > 0 && end - at < 4 && text[at - 1] >= '0' && text[at - 1] <= '9'; at--, digit *= 10) value += (text[at - 1] - '0') * digit;
        if (at == end || end - at > 3 || at == 0 || text[at - 1] != ' ') continue;
        struct mention *m = (struct mention *)malloc(sizeof *m);
        expect(m != NULL);
        m->piece = number;
        ok(pthread_mutex_lock(&lock));
        m->next = targets[value].mentions;
        targets[value].mentions = m;
        targets[value].count++;
        ok(pthread_mutex_unlock(&lock));
    }
}

// Dedup: pieces that end where their content says, of which those that were not there before are packed. The table is shared, under one lock.
#define BUCKETS 65536
#define LEAST_PART 2048
#define MOST_PART 32768

static struct part {
    struct part *next;
    uint64_t hash;
    long len, packed_len, count;
    unsigned char *packed;
} *parts[BUCKETS];

static long cut(const unsigned char *from, long left) {
    uint32_t rolling = 0;
    long most = left < MOST_PART ? left : MOST_PART;
    for (long i = LEAST_PART - 32; i < most; i++) {
        rolling = (rolling << 1) + from[i] * 0x9e3779b1u;
        if (i >= LEAST_PART && rolling >> 20 == 0) return i + 1;
    }
    return most;
}

static uint64_t hash_of(const unsigned char *from, long len) {
    uint64_t h = len;
    for (; len >= 8; len -= 8, from += 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        h = ((h << 5 | h >> 59) ^ word) * 0x9e3779b97f4a7c15u;
    }
    for (; len > 0; len--) h = ((h << 5 | h >> 59) ^ *from++) * 0x9e3779b97f4a7c15u;
    return h;
}

// Words that were there before are named by where, others stand for themselves.
static long pack(int *table, unsigned char *to, const unsigned char *from, long len) {
    long out = 0, literals = 0, at = 0;
    memset(table, -1, sizeof ((struct state *)0)->table);
    while (at + 8 <= len) {
        uint32_t word;
        memcpy(&word, from + at, 4);
        int *slot = &table[word * 0x9e3779b1u >> 18];
        long before = *slot, run = 0;
        *slot = at;
        if (before >= 0) {
            while (at + run < len && run < 255 && from[before + run] == from[at + run]) run++;
        }
        if (run < 4) {
            to[out + 1 + literals++] = from[at++];
            if (literals < 127) continue;
            to[out] = literals;
            out += 1 + literals;
            literals = 0;
            continue;
        }
        if (literals) {
            to[out] = literals;
            out += 1 + literals;
            literals = 0;
        }
        to[out++] = 128, to[out++] = run, to[out++] = before, to[out++] = before >> 8;
        at += run;
    }
    for (; at < len; at++) to[out + 1 + literals++] = from[at];
    to[out] = literals;
    return out + 1 + literals;
}

static void take_part(struct state *own, const unsigned char *from, long len) {
    uint64_t hash = hash_of(from, len);
    ok(pthread_mutex_lock(&lock));
    struct part **bucket = &parts[hash % BUCKETS], *p = *bucket;
    while (p && (p->hash != hash || p->len != len)) p = p->next;
    bool is_new = p == NULL;
    if (is_new) {
        p = (struct part *)calloc(1, sizeof *p);
        expect(p != NULL);
        p->hash = hash, p->len = len;
        p->next = *bucket;
        *bucket = p;
    }
    p->count++;
    ok(pthread_mutex_unlock(&lock));
    if (!is_new) return;
    long packed_len = pack(own->table, own->packed, from, len);
    unsigned char *packed = (unsigned char *)malloc(packed_len);
    expect(packed != NULL);
    memcpy(packed, own->packed, packed_len);
    ok(pthread_mutex_lock(&lock));
    p->packed = packed, p->packed_len = packed_len;
    ok(pthread_mutex_unlock(&lock));
}

static void take_parts(struct state *own, const unsigned char *text, long len, long behind, long number) {
    (void)behind, (void)number;
    for (long at = 0; at < len;) {
        long n = cut(text + at, len - at);
        take_part(own, text + at, n);
        at += n;
    }
}

static void merge_nothing(struct state *own) {
    (void)own;
}

static const struct kernel kernels[] = {
    {"histogram", 1 << 20, false, count_colours, merge_colours},
    {"linear_regression", 1 << 20, false, add_points, merge_points},
    {"string_match", 65536, false, match_words, merge_words},
    {"reverse_index", 131072, false, find_links, merge_nothing},
    {"dedup", 262144, true, take_parts, merge_nothing},
};

// A piece of the file with what is around it; returns how many bytes there are from the piece's first one on.
static long read_piece(unsigned char *to, long number) {
    long at = number * kernel->piece, before = number > 0;
    long wanted = before + kernel->piece + BEHIND, n = 0;
    while (n < wanted) {
        long got = must(pread(fd, to - before + n, wanted - n, at - before + n));
        if (got == 0) break;
        n += got;
    }
    return n - before;
}

// The piece that a thread reads as its i-th; -1 when there is none.
static long piece_of(long thread, long i) {
    if (!kernel->queue) {
        long from = pieces * thread / threads, to = pieces * (thread + 1) / threads;
        return i < (to - from) * times ? from + i % (to - from) : -1;
    }
    ok(pthread_mutex_lock(&lock));
    long piece = handed_out < pieces * times ? handed_out++ % pieces : -1;
    ok(pthread_mutex_unlock(&lock));
    return piece;
}

static void *body(void *which) {
    long thread = (intptr_t)which;
    struct state *own = (struct state *)aligned_alloc(64, sizeof *own);
    unsigned char *room = (unsigned char *)aligned_alloc(64, BEFORE + kernel->piece + BEHIND), *text = room + BEFORE;
    expect(own != NULL && room != NULL);
    memset(own, 0, sizeof *own);
    own->packed = (unsigned char *)malloc(2 * MOST_PART);
    expect(own->packed != NULL);
    for (long i = 0, piece; (piece = piece_of(thread, i)) >= 0; i++) {
        long there = read_piece(text, piece);
        long len = there < kernel->piece ? there : kernel->piece;
        kernel->take_in(own, text, len, there - len, piece);
    }
    ok(pthread_mutex_lock(&lock));
    kernel->merge(own);
    ok(pthread_mutex_unlock(&lock));
    free(own->packed);
    free(room);
    free(own);
    return NULL;
}

// What stands in the tables that all share.
static uint64_t shared(void) {
    uint64_t sum = 0;
    for (int t = 0; t < 1000; t++) {
        for (struct mention *m = targets[t].mentions; m; m = m->next) sum += mix(mix(t) + m->piece);
        sum += targets[t].count;
    }
    for (int b = 0; b < BUCKETS; b++) {
        for (struct part *p = parts[b]; p; p = p->next) sum += mix(p->hash + p->count + hash_of(p->packed, p->packed_len));
    }
    return sum;
}

int main(int argc, char **argv) {
    pthread_t all[MOST];
    struct stat st;
    expect(argc > 2);
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        if (!strcmp(argv[1], kernels[k].name)) kernel = &kernels[k];
    }
    expect(kernel != NULL);
    fd = must(open(argv[2], O_RDONLY));
    must(fstat(fd, &st));
    threads = number(argc, argv, 3, 2);
    times = number(argc, argv, 4, 1);
    expect(threads >= 1 && threads <= MOST && times >= 1);
    size = st.st_size;
    pieces = (size + kernel->piece - 1) / kernel->piece;
    for (long i = 0; i < threads; i++) all[i] = start(body, (void *)i);
    for (long i = 0; i < threads; i++) finish(all[i]);
    say("%s of %ld bytes, %ld times: %lu\n", kernel->name, size, times, result + shared());
}
