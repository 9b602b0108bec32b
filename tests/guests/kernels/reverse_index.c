// Which pages of SIZE bytes of text link to where, in the manner of Phoenix's reverse index: threads take files, and put each link that they find into an
// index that all share, under one lock, with the file in a list that is allocated for it.
#include "kernel.h"

#define FILE_BYTES 131072
#define MARK "<a href=\""
#define LINK 16
#define BUCKETS 4096
#define SERIES 1

struct mention {
    struct mention *next;
    long file;
};

struct target {
    struct target *next;
    uint64_t hash;
    char link[LINK];
    struct mention *mentions;
    long count;
};

static long n;
static const unsigned char *text;
static struct target *index_of_links[BUCKETS];
static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER;
static struct work files = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
static _Thread_local long found;

// A page's text: words, and a link every few thousand bytes.
static void fill(unsigned char *part, long len) {
    for (long i = 0; i < len; i++) {
        uint64_t r = random_at(SERIES, i);
        part[i] = r % 6 == 0 ? ' ' : 'a' + r / 6 % 26;
    }
    for (long at = 100, i = 0; at + 64 < len; at += 1500 + random_at(SERIES + 1, i++) % 3000) {
        memcpy(part + at, MARK, sizeof MARK - 1);
        for (int c = 0; c < LINK - 1; c++) part[at + sizeof MARK - 1 + c] = 'a' + random_at(SERIES + 2, random_at(SERIES + 3, i) % 200 * LINK + c) % 26;
        part[at + sizeof MARK - 1 + LINK - 1] = '"';
    }
}

static void mention(const char *link, long file) {
    uint64_t hash = checksum_of(1, link, LINK - 1);
    lock(&index_lock);
    struct target *t = index_of_links[hash % BUCKETS];
    while (t && (t->hash != hash || memcmp(t->link, link, LINK - 1) != 0)) t = t->next;
    if (!t) {
        t = room_for(1, sizeof *t);
        t->hash = hash;
        memcpy(t->link, link, LINK - 1);
        t->next = index_of_links[hash % BUCKETS];
        index_of_links[hash % BUCKETS] = t;
    }
    struct mention *m = room_for(1, sizeof *m);
    m->file = file;
    m->next = t->mentions;
    t->mentions = m;
    t->count++;
    unlock(&index_lock);
}

static void search(long file, void (*found_one)(const char *link, long file)) {
    long end = (file + 1) * FILE_BYTES < n ? (file + 1) * FILE_BYTES : n;
    for (long i = file * FILE_BYTES; i + (long)sizeof MARK - 1 + LINK <= end; i++) {
        if (text[i] == '<' && memcmp(text + i, MARK, sizeof MARK - 1) == 0) found_one((const char *)text + i + sizeof MARK - 1, file);
    }
}

static void count_only(const char *link, long file) {
    (void)link, (void)file;
    found++;
}

static void body(int thread) {
    (void)thread;
    for (long file; (file = take(&files)) >= 0;) search(file, mention);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){400000, 40000000, 400000000});
    n = kernel.size;
    text = input_of(n, fill);
    files.count = (n + FILE_BYTES - 1) / FILE_BYTES;
    in_parallel(body);
    uint64_t sum = 0;
    long mentions = 0;
    for (int b = 0; b < BUCKETS; b++) {
        for (struct target *t = index_of_links[b]; t; t = t->next) {
            long listed = 0;
            for (struct mention *m = t->mentions; m; m = m->next) {
                listed++;
                sum += mix(t->hash + m->file);
            }
            expect(listed == t->count);
            mentions += listed;
        }
    }
    if (kernel.thorough) {
        for (long file = 0; file < files.count; file++) search(file, count_only);
        expect(found == mentions);
    }
    kernel_end(sum);
}
