// How often each word is there in a generated text of SIZE words that is read ROUNDS times, in the manner of Phoenix: a lock hands out blocks of
// text, each thread counts in a hash table of its own (map), then each merges one part of all tables (reduce). New words are allocated.
#include "kernel.h"

#define ROUNDS 4
#define VOCABULARY 20000
#define WORDS 4096
#define MAX_WORD 8
#define BUCKETS 8192
#define SERIES 1

struct entry {
    struct entry *next;
    uint64_t hash, count;
    int length;
    char word[];
};

// The last block may be shorter than the others.
static struct block {
    char *text;
    int length;
} *blocks;
static long n, count_of_blocks;
static struct entry **tables[MAX_THREADS];
static uint64_t *wanted[MAX_THREADS];
static struct APART {
    uint64_t sum, words, different;
} results[MAX_THREADS];
static struct work queue = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// Writes a word of the vocabulary; its length.
static int spell(long index, char *to) {
    int length = 0;
    for (long rest = index + 26; rest > 0; rest /= 26) to[length++] = 'a' + rest % 26;
    return length;
}

static void generate(int thread) {
    struct range own = share_of(count_of_blocks, thread);
    for (long b = own.from; b < own.to; b++) {
        char *to = blocks[b].text = room_for(WORDS, MAX_WORD);
        for (long i = b * WORDS; i < n && i < (b + 1) * WORDS; i++) {
            double u = uniform_at(SERIES, i);
            long index = u * u * u * VOCABULARY;
            wanted[thread][index]++;
            to += spell(index, to);
            *to++ = i % 16 == 15 ? '\n' : ' ';
        }
        blocks[b].length = to - blocks[b].text;
    }
}

// Counts a word `times` more.
static struct entry *count(struct entry **table, const char *word, int length, uint64_t hash, uint64_t times) {
    struct entry **at = &table[hash % BUCKETS];
    for (; *at; at = &(*at)->next) {
        if ((*at)->hash == hash && (*at)->length == length && !memcmp((*at)->word, word, length)) break;
    }
    if (!*at) {
        *at = malloc(sizeof **at + length);
        expect(*at != NULL);
        **at = (struct entry){.hash = hash, .length = length};
        memcpy((*at)->word, word, length);
    }
    (*at)->count += times;
    return *at;
}

static void map(struct entry **table, const struct block *block) {
    const char *end = block->text + block->length;
    for (const char *word = block->text; word < end;) {
        const char *p = word;
        while (*p >= 'a') p++;
        count(table, word, p - word, mix(hash_bytes(word, p - word)), 1);
        word = p + 1;
    }
}

static void reduce(int thread) {
    struct range own = share_of(BUCKETS, thread);
    for (long b = own.from; b < own.to; b++) {
        for (int t = 1; t < kernel.threads; t++) {
            for (struct entry *e = tables[t][b], *next; e; e = next) {
                next = e->next;
                count(tables[0], e->word, e->length, e->hash, e->count);
                free(e);
            }
        }
        for (struct entry *e = tables[0][b]; e; e = e->next) {
            results[thread].sum += mix(e->hash ^ e->count);
            results[thread].words += e->count;
            results[thread].different++;
        }
    }
}

static void body(int thread) {
    generate(thread);
    barrier();
    for (long b; (b = take(&queue)) >= 0;) map(tables[thread], &blocks[b % count_of_blocks]);
    barrier();
    reduce(thread);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){30000, 6000000, 30000000});
    n = kernel.size;
    count_of_blocks = (n + WORDS - 1) / WORDS;
    queue.count = count_of_blocks * ROUNDS;
    blocks = room_for(count_of_blocks, sizeof *blocks);
    for (int t = 0; t < kernel.threads; t++) {
        tables[t] = room_for(BUCKETS, sizeof **tables);
        wanted[t] = room_for(VOCABULARY, sizeof **wanted);
    }
    in_parallel(body);
    // The generator knows what it wrote.
    uint64_t sum = 0, words = 0, different = 0;
    for (int t = 0; t < kernel.threads; t++) {
        sum += results[t].sum;
        words += results[t].words;
        different += results[t].different;
    }
    for (long i = 0; i < VOCABULARY; i++) {
        char word[MAX_WORD];
        int length = spell(i, word);
        uint64_t times = 0;
        for (int t = 0; t < kernel.threads; t++) times += wanted[t][i];
        if (times == 0) continue;
        different--;
        expect(count(tables[0], word, length, mix(hash_bytes(word, length)), 0)->count == times * ROUNDS);
    }
    expect(words == (uint64_t)n * ROUNDS && different == 0);
    kernel_end(sum);
}
