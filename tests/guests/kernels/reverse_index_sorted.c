// Which files of SIZE bytes in all link to where, in the manner of Phoenix as Dthreads was measured with it: files of 5 kB are handed out under a lock, each thread
// writes ends behind the links in them, keeps what it has found in a sorted array that grows, with a list that is allocated for each mention, and merges are made by
// threads. (In `reverse_index` all share one index, under one lock.)
#include "kernel.h"

#define FILE_BYTES 5120
#define MARK "<a href=\""
#define LINK 16
#define LINKS 2000
#define AT_FIRST 2000
#define SERIES 1

struct mention {
    struct mention *next;
    long file;
};

struct target {
    const char *link;
    struct mention *mentions;
};

static struct sorted {
    struct target *targets;
    long length, room;
} parts[MAX_THREADS];
static long n, count_of_files, apart;
static char **files;
static struct work queue = {PTHREAD_MUTEX_INITIALIZER, 0, 0};

static void fill(unsigned char *part, long len) {
    for (long i = 0; i < len; i++) {
        uint64_t r = random_at(SERIES, i);
        part[i] = r % 6 == 0 ? ' ' : 'a' + r / 6 % 26;
    }
    for (long at = 100, i = 0; at + 64 < len; at += 300 + random_at(SERIES + 1, i++) % 1000) {
        memcpy(part + at, MARK, sizeof MARK - 1);
        for (int c = 0; c < LINK - 1; c++) part[at + sizeof MARK - 1 + c] = 'a' + random_at(SERIES + 2, random_at(SERIES + 3, i) % LINKS * LINK + c) % 26;
        part[at + sizeof MARK - 1 + LINK - 1] = '"';
    }
}

static void mention(struct sorted *in, const char *link, long file) {
    long low = 0, high = in->length;
    struct mention *m = room_for(1, sizeof *m);
    m->file = file;
    while (low < high) {
        long middle = (low + high) / 2;
        int order = strcmp(link, in->targets[middle].link);
        if (order == 0) {
            m->next = in->targets[middle].mentions;
            in->targets[middle].mentions = m;
            return;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    if (in->length == in->room) {
        in->room = in->room ? 2 * in->room : AT_FIRST;
        in->targets = realloc(in->targets, in->room * sizeof *in->targets);
        expect(in->targets != NULL);
    }
    memmove(in->targets + low + 1, in->targets + low, (in->length - low) * sizeof *in->targets);
    in->targets[low] = (struct target){link, m};
    in->length++;
}

static void search(int thread) {
    for (long file; (file = take(&queue)) >= 0;) {
        char *text = files[file];
        long len = file + 1 < count_of_files ? FILE_BYTES : n - file * FILE_BYTES;
        for (long i = 0; i + (long)sizeof MARK - 1 + LINK <= len; i++) {
            if (text[i] != '<' || memcmp(text + i, MARK, sizeof MARK - 1) != 0) continue;
            char *link = text + i + sizeof MARK - 1, *end = memchr(link, '"', LINK);
            if (!end) continue;
            *end = 0;
            mention(&parts[thread], link, file);
            i = end - text;
        }
    }
}

static void merge(int pair) {
    struct sorted *a = &parts[2 * apart * pair], *b = a + apart, all = {.room = a->length + b->length};
    all.targets = room_for(all.room + 1, sizeof *all.targets);
    for (long i = 0, j = 0; i < a->length || j < b->length;) {
        int order = i == a->length ? 1 : j == b->length ? -1 : strcmp(a->targets[i].link, b->targets[j].link);
        struct target *to = &all.targets[all.length++];
        *to = order <= 0 ? a->targets[i] : b->targets[j];
        if (order == 0) {
            struct mention *last = b->targets[j].mentions;
            while (last->next) last = last->next;
            last->next = to->mentions;
            to->mentions = b->targets[j].mentions;
        }
        i += order <= 0, j += order >= 0;
    }
    free(a->targets);
    free(b->targets);
    *a = all, *b = (struct sorted){0};
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){400000, 40000000, 200000000});
    n = kernel.size;
    const unsigned char *input = input_of(n, fill);
    queue.count = count_of_files = (n + FILE_BYTES - 1) / FILE_BYTES;
    files = room_for(count_of_files, sizeof *files);
    for (long file = 0; file < count_of_files; file++) {
        long at = file * FILE_BYTES;
        files[file] = room_for(1, FILE_BYTES + 1);
        memcpy(files[file], input + at, n - at < FILE_BYTES ? n - at : FILE_BYTES);
    }
    in_parallel(search);
    for (apart = 1; apart < kernel.threads; apart *= 2) in_parallel_of((kernel.threads + apart - 1) / (2 * apart), merge);
    // Which thread took a file is not to be seen in the sum.
    uint64_t sum = 0, mentions = 0, wanted = 0;
    for (int t = 0; t < kernel.threads; t++) {
        for (long i = 0; i < parts[t].length; i++) {
            const struct target *target = &parts[t].targets[i];
            uint64_t link = hash_bytes(target->link, strlen(target->link));
            for (struct mention *m = target->mentions; m; m = m->next) {
                mentions++;
                sum += mix(link + m->file);
            }
        }
    }
    for (long file = 0; file < count_of_files; file++) {
        for (long i = 0; i + (long)sizeof MARK - 1 + LINK <= FILE_BYTES; i++) {
            if (files[file][i] == '<' && memcmp(files[file] + i, MARK, sizeof MARK - 1) == 0) wanted += memchr(files[file] + i + sizeof MARK - 1, 0, LINK) != NULL;
        }
    }
    expect(mentions == wanted);
    kernel_end(sum);
}
