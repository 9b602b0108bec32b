// Which words of SIZE bytes of keys are one of four, in the manner of Phoenix: each thread enciphers the words of its part, and compares.
#include "kernel.h"

#define KEYS 4
#define MAX_WORD 12
#define SERIES 1

static long n;
static const unsigned char *text;
static uint64_t wanted[KEYS];
static struct {
    APART int64_t found[KEYS];
} counts[MAX_THREADS];

static void fill(unsigned char *part, long len) {
    long at = 0;
    for (uint64_t word = 0; at < len; word++) {
        uint64_t r = random_at(SERIES, word % 5000);
        long letters = 3 + r % 8;
        for (long c = 0; c < letters && at < len; c++) part[at++] = 'a' + (r >> (8 + 4 * c)) % 16;
        if (at < len) part[at++] = '\n';
    }
    part[len - 1] = '\n';
}

// A word, enciphered letter by letter.
static uint64_t enciphered(const unsigned char *word, long letters) {
    unsigned char text_of[MAX_WORD] = {0};
    for (long c = 0; c < letters && c < MAX_WORD; c++) text_of[c] = word[c] + 5;
    uint64_t low;
    uint32_t high;
    memcpy(&low, text_of, 8);
    memcpy(&high, text_of + 8, 4);
    return mix(low) + high;
}

static void count(int64_t *found, struct range part) {
    // The first word that begins here is the first that is this part's.
    long at = part.from;
    while (at > 0 && at < part.to && text[at - 1] != '\n') at++;
    while (at < part.to) {
        long end = at;
        while (end < n && text[end] != '\n') end++;
        uint64_t word = enciphered(text + at, end - at);
        for (int k = 0; k < KEYS; k++) found[k] += word == wanted[k];
        at = end + 1;
    }
}

static void body(int thread) {
    count(counts[thread].found, share_of(n, thread));
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){200000, 50000000, 500000000});
    n = kernel.size;
    text = input_of(n, fill);
    long at = 0;
    for (int k = 0; k < KEYS; k++) {
        long end = at;
        while (end < n && text[end] != '\n') end++;
        wanted[k] = enciphered(text + at, end - at);
        at = end + 1;
    }
    in_parallel(body);
    int64_t all[KEYS] = {0}, reference[KEYS] = {0};
    for (int t = 0; t < kernel.threads; t++) {
        for (int k = 0; k < KEYS; k++) all[k] += counts[t].found[k];
    }
    expect(all[0] > 0);
    if (kernel.thorough) {
        count(reference, (struct range){0, n});
        expect(memcmp(all, reference, sizeof all) == 0);
    }
    kernel_end(checksum_of(0, all, sizeof all));
}
