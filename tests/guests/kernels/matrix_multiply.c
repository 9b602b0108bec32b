// The product of two matrices of SIZE times SIZE integers, by the definition, in the manner of Phoenix: each thread makes its rows.
#include "kernel.h"

#define SERIES 1

static long n;
static int *left, *right, *product;

static int element(long row, long column) {
    int sum = 0;
    for (long k = 0; k < n; k++) sum += left[row * n + k] * right[k * n + column];
    return sum;
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long row = own.from; row < own.to; row++) {
        for (long column = 0; column < n; column++) product[row * n + column] = element(row, column);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){60, 900, 1500});
    n = kernel.size;
    left = room_for(n * n, sizeof *left);
    right = room_for(n * n, sizeof *right);
    product = room_for(n * n, sizeof *product);
    for (long i = 0; i < n * n; i++) {
        left[i] = random_at(SERIES, i) % 100;
        right[i] = random_at(SERIES + 1, i) % 100;
    }
    in_parallel(body);
    // The sum of a row of the product is the row times the sums of the other's rows.
    for (long row = 0; row < n; row++) {
        int64_t sum = 0, wanted = 0;
        for (long k = 0; k < n; k++) {
            sum += product[row * n + k];
            if (kernel.thorough) {
                for (long c = 0; c < n; c++) wanted += left[row * n + k] * right[k * n + c];
            }
        }
        if (kernel.thorough) expect(sum == wanted);
    }
    kernel_end(checksum_of(0, product, n * n * sizeof *product));
}
