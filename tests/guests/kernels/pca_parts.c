// Means of the rows of a matrix of SIZE times SIZE integers, and how each two rows vary together, in the manner of Phoenix's principal components as Dthreads was
// measured with them: each row is allocated by itself, threads made anew for each half have their parts of the rows, and one thread copies the upper half to the
// lower one at last. (In `pca` threads take rows as they come, under a lock, and write both halves.)
#include "kernel.h"

#define SERIES 1

static long n;
static int **matrix, *means, **together;

static void find_means(int thread) {
    struct range own = share_of(n, thread);
    for (long row = own.from; row < own.to; row++) {
        int64_t sum = 0;
        for (long i = 0; i < n; i++) sum += matrix[row][i];
        means[row] = sum / n;
    }
}

static int varies(long a, long b) {
    int64_t sum = 0;
    for (long i = 0; i < n; i++) sum += (matrix[a][i] - means[a]) * (matrix[b][i] - means[b]);
    return sum / (n > 1 ? n - 1 : 1);
}

// Where the part of a thread begins, so that all have as many pairs of rows.
static long first_row(int thread) {
    long pairs = n * (n + 1) / 2 * thread / kernel.threads, row = 0;
    for (long before = 0; before + (n - row) <= pairs; row++) before += n - row;
    return row;
}

static void compare(int thread) {
    long to = thread + 1 == kernel.threads ? n : first_row(thread + 1);
    for (long row = first_row(thread); row < to; row++) {
        for (long other = row; other < n; other++) together[row][other] = varies(row, other);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){60, 1000, 1800});
    n = kernel.size;
    matrix = room_for(n, sizeof *matrix);
    together = room_for(n, sizeof *together);
    means = room_for(n, sizeof *means);
    for (long row = 0; row < n; row++) {
        matrix[row] = room_for(n, sizeof **matrix);
        together[row] = room_for(n, sizeof **together);
        for (long i = 0; i < n; i++) matrix[row][i] = random_at(SERIES, row * n + i) % 1000;
    }
    in_parallel(find_means);
    in_parallel(compare);
    uint64_t checksum = 0;
    for (long row = 0; row < n; row++) {
        for (long other = row; other < n; other++) together[other][row] = together[row][other];
    }
    for (long row = 0; row < n; row += kernel.thorough ? 1 : 97) {
        for (long other = 0; other < n; other += kernel.thorough ? 1 : 97) expect(together[row][other] == varies(row, other));
    }
    for (long row = 0; row < n; row++) checksum = checksum_of(checksum, together[row], n * sizeof **together);
    kernel_end(checksum);
}
