// How often each word is there in SIZE bytes of text, in the manner of Phoenix as Dthreads was measured with it: the text is a private mapping of a file that the
// threads write to (words get capitals, and an end), each keeps the words of its part in a sorted array that grows, and merges are made by threads, two arrays
// at a time. Nothing is locked. (In `word_count` blocks of text are handed out under a lock, and counted in hash tables.)
#include "kernel.h"

#define VOCABULARY 5000
#define AT_FIRST 2000
#define SERIES 1

struct word {
    const char *text;
    long count;
};

static struct sorted {
    struct word *words;
    long length, room;
} parts[MAX_THREADS];
static long n, apart, begins[MAX_THREADS + 1];
static char *text;

static void fill(unsigned char *part, long len) {
    for (long at = 0, i = 0; at < len; i++) {
        double u = uniform_at(SERIES, i);
        for (long rest = u * u * u * VOCABULARY + 26; rest > 0 && at < len; rest /= 26) part[at++] = 'a' + rest % 26;
        if (at < len) part[at++] = i % 16 == 15 ? '\n' : ' ';
    }
}

static bool is_letter(char c) {
    return c >= 'A' && c <= 'Z';
}

// The place of a word, or where it belongs.
static long place_of(const struct sorted *in, const char *word, bool *found) {
    long low = 0, high = in->length;
    while (low < high) {
        long middle = (low + high) / 2;
        int order = strcmp(word, in->words[middle].text);
        if (order == 0) return *found = true, middle;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return *found = false, low;
}

static void count(struct sorted *in, const char *word) {
    bool found;
    long place = place_of(in, word, &found);
    if (found) {
        in->words[place].count++;
        return;
    }
    if (in->length == in->room) {
        in->room = in->room ? 2 * in->room : AT_FIRST;
        in->words = realloc(in->words, in->room * sizeof *in->words);
        expect(in->words != NULL);
    }
    memmove(in->words + place + 1, in->words + place, (in->length - place) * sizeof *in->words);
    in->words[place] = (struct word){word, 1};
    in->length++;
}

// The first end of a word from there on, before threads write ends.
static long word_end(long at) {
    while (at < n && text[at] != ' ' && text[at] != '\n') at++;
    return at;
}

static void map(int thread) {
    const char *word = NULL;
    for (long i = begins[thread]; i <= begins[thread + 1]; i++) {
        char c = i < n && text[i] >= 'a' ? text[i] - 'a' + 'A' : ' ';
        if (is_letter(c)) {
            text[i] = c;
            if (!word) word = text + i;
        } else if (word) {
            text[i] = 0;
            count(&parts[thread], word);
            word = NULL;
        }
    }
}

static void merge(int pair) {
    struct sorted *a = &parts[2 * apart * pair], *b = a + apart, all = {.room = a->length + b->length};
    all.words = room_for(all.room + 1, sizeof *all.words);
    for (long i = 0, j = 0; i < a->length || j < b->length;) {
        int order = i == a->length ? 1 : j == b->length ? -1 : strcmp(a->words[i].text, b->words[j].text);
        all.words[all.length] = order <= 0 ? a->words[i] : b->words[j];
        if (order == 0) all.words[all.length].count += b->words[j].count;
        all.length++;
        i += order <= 0, j += order >= 0;
    }
    free(a->words);
    free(b->words);
    *a = all, *b = (struct sorted){0};
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){300000, 50000000, 250000000});
    n = kernel.size;
    text = own_input_of(n, fill);
    for (int t = 1; t <= kernel.threads; t++) begins[t] = word_end(share_of(n, t - 1).to);
    in_parallel(map);
    for (apart = 1; apart < kernel.threads; apart *= 2) in_parallel_of((kernel.threads + apart - 1) / (2 * apart), merge);
    uint64_t sum = 0, words = 0;
    for (int t = 0; t < kernel.threads; t++) {
        for (long i = 0; i < parts[t].length; i++) {
            words += parts[t].words[i].count;
            sum += mix(hash_bytes(parts[t].words[i].text, strlen(parts[t].words[i].text)) + parts[t].words[i].count);
            expect(i == 0 || strcmp(parts[t].words[i - 1].text, parts[t].words[i].text) < 0);
        }
    }
    uint64_t wanted = 0;
    for (long i = 0; i < n; i++) wanted += is_letter(text[i]) && (i + 1 == n || !is_letter(text[i + 1]));
    expect(words == wanted);
    kernel_end(sum);
}
