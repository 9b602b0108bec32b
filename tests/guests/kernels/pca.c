// Means of the rows of a matrix of SIZE times SIZE integers, and how each two rows vary together, in the manner of Phoenix's principal components:
// threads take rows as they come.
#include "kernel.h"

#define SERIES 1

static long n;
static int *matrix, *means, *together;
static struct work rows_of_means = {PTHREAD_MUTEX_INITIALIZER, 0, 0}, rows = {PTHREAD_MUTEX_INITIALIZER, 0, 0};

static int varies(long a, long b) {
    int64_t sum = 0;
    for (long i = 0; i < n; i++) sum += (matrix[a * n + i] - means[a]) * (matrix[b * n + i] - means[b]);
    return sum / (n > 1 ? n - 1 : 1);
}

static void body(int thread) {
    (void)thread;
    for (long row; (row = take(&rows_of_means)) >= 0;) {
        int64_t sum = 0;
        for (long i = 0; i < n; i++) sum += matrix[row * n + i];
        means[row] = sum / n;
    }
    barrier();
    for (long row; (row = take(&rows)) >= 0;) {
        for (long other = row; other < n; other++) together[row * n + other] = together[other * n + row] = varies(row, other);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){60, 1000, 1800});
    n = kernel.size;
    matrix = room_for(n * n, sizeof *matrix);
    means = room_for(n, sizeof *means);
    together = room_for(n * n, sizeof *together);
    for (long i = 0; i < n * n; i++) matrix[i] = random_at(SERIES, i) % 1000;
    rows_of_means.count = rows.count = n;
    in_parallel(body);
    for (long row = 0; row < n; row += kernel.thorough ? 1 : 97) {
        for (long other = 0; other < n; other += kernel.thorough ? 1 : 97) expect(together[row * n + other] == varies(row, other));
    }
    kernel_end(checksum_of(0, together, n * n * sizeof *together));
}
