// How often each brightness of red, green and blue is there in a picture of SIZE points that is mapped from a file, in the manner of Phoenix: each thread counts in
// its part, in counters of its own that lie beside the others', and the thread that made them adds up. (In `histogram` the picture is counted 40 times, and
// added up under a lock.)
#include "kernel.h"

#define CHANNELS 3
#define SERIES 1

typedef uint32_t histogram[CHANNELS][256];

static long n;
static const unsigned char *picture;
static histogram *parts;

static void fill(unsigned char *part, long len) {
    for (long i = 0; i < len; i++) part[i] = (random_at(SERIES, i) & 0xff) * (random_at(SERIES + 1, i) & 0xff) >> 8;
}

static void count(histogram counts, struct range part) {
    for (long i = part.from; i < part.to; i++) {
        for (int c = 0; c < CHANNELS; c++) counts[c][picture[CHANNELS * i + c]]++;
    }
}

static void body(int thread) {
    count(parts[thread], share_of(n, thread));
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){20000, 50000000, 150000000});
    n = kernel.size;
    picture = input_of(CHANNELS * n, fill);
    parts = room_for(kernel.threads, sizeof *parts);
    in_parallel(body);
    histogram all = {{0}}, reference = {{0}};
    for (int t = 0; t < kernel.threads; t++) {
        for (int c = 0; c < CHANNELS; c++) {
            for (int i = 0; i < 256; i++) all[c][i] += parts[t][c][i];
        }
    }
    if (kernel.thorough) {
        count(reference, (struct range){0, n});
        expect(memcmp(reference, all, sizeof all) == 0);
    }
    kernel_end(checksum_of(0, all, sizeof all));
}
