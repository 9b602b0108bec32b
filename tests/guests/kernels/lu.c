// The factors L and U of a dense matrix of SIZE rows, in blocks that each have one thread as owner; no pivoting, since the diagonal
// dominates. Two barriers for each block of the diagonal.
#include "kernel.h"

#include <math.h>

#define BLOCK 32
#define SERIES 1

static long n, blocks;
// Block after block, each row after row.
static double *matrix;

static double *block(long i, long j) {
    return matrix + (i * blocks + j) * BLOCK * BLOCK;
}

static double input(long row, long column) {
    return uniform_at(SERIES, row * n + column) + (row == column ? n : 0);
}

static bool owns(int thread, long i, long j) {
    return (i + j) % kernel.threads == thread;
}

// a = L U, in its place.
static void factor(double *a) {
    for (int k = 0; k < BLOCK; k++) {
        for (int i = k + 1; i < BLOCK; i++) {
            double l = a[i * BLOCK + k] /= a[k * BLOCK + k];
            for (int j = k + 1; j < BLOCK; j++) a[i * BLOCK + j] -= l * a[k * BLOCK + j];
        }
    }
}

// a = a U^-1
static void divide_by_upper(double *a, const double *u) {
    for (int i = 0; i < BLOCK; i++) {
        for (int k = 0; k < BLOCK; k++) {
            double x = a[i * BLOCK + k] /= u[k * BLOCK + k];
            for (int j = k + 1; j < BLOCK; j++) a[i * BLOCK + j] -= x * u[k * BLOCK + j];
        }
    }
}

// a = L^-1 a
static void divide_by_lower(double *a, const double *l) {
    for (int k = 0; k < BLOCK; k++) {
        for (int i = k + 1; i < BLOCK; i++) {
            for (int j = 0; j < BLOCK; j++) a[i * BLOCK + j] -= l[i * BLOCK + k] * a[k * BLOCK + j];
        }
    }
}

// c = c - a b
static void subtract_product(double *restrict c, const double *restrict a, const double *restrict b) {
    for (int i = 0; i < BLOCK; i++) {
        for (int k = 0; k < BLOCK; k++) {
            double x = a[i * BLOCK + k];
            for (int j = 0; j < BLOCK; j++) c[i * BLOCK + j] -= x * b[k * BLOCK + j];
        }
    }
}

static void body(int thread) {
    for (long i = 0; i < blocks; i++) {
        for (long j = 0; j < blocks; j++) {
            if (!owns(thread, i, j)) continue;
            for (long e = 0; e < BLOCK * BLOCK; e++) block(i, j)[e] = input(i * BLOCK + e / BLOCK, j * BLOCK + e % BLOCK);
        }
    }
    for (long k = 0; k < blocks; k++) {
        if (owns(thread, k, k)) factor(block(k, k));
        barrier();
        for (long i = k + 1; i < blocks; i++) {
            if (owns(thread, i, k)) divide_by_upper(block(i, k), block(k, k));
            if (owns(thread, k, i)) divide_by_lower(block(k, i), block(k, k));
        }
        barrier();
        for (long i = k + 1; i < blocks; i++) {
            for (long j = k + 1; j < blocks; j++) {
                if (owns(thread, i, j)) subtract_product(block(i, j), block(i, k), block(k, j));
            }
        }
    }
}

static double element(long row, long column) {
    return block(row / BLOCK, column / BLOCK)[row % BLOCK * BLOCK + column % BLOCK];
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){128, 2048, 3488});
    blocks = (kernel.size + BLOCK - 1) / BLOCK;
    n = blocks * BLOCK;
    matrix = room_for(n * n, sizeof *matrix);
    in_parallel(body);
    // L (U v) must be what the matrix makes of v.
    double *v = room_for(n, sizeof *v), *uv = room_for(n, sizeof *uv);
    for (long i = 0; i < n; i++) v[i] = uniform_at(2, i);
    for (long i = 0; i < n; i++) {
        for (long j = i; j < n; j++) uv[i] += element(i, j) * v[j];
    }
    for (long i = 0; i < n; i++) {
        double product = uv[i], wanted = 0;
        for (long j = 0; j < i; j++) product += element(i, j) * uv[j];
        for (long j = 0; j < n; j++) wanted += input(i, j) * v[j];
        expect(fabs(product - wanted) < 1e-9 * n);
    }
    kernel_end(checksum_of(0, matrix, n * n * sizeof *matrix));
}
