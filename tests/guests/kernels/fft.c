// A complex Fourier transform of 2^SIZE numbers, in six steps: the numbers are a matrix; transpose it, transform its rows, twiddle,
// transpose, transform rows, transpose. Barriers between the steps. There and back, ROUNDS times.
#include "kernel.h"

#include <math.h>

#define ROUNDS 8
#define BLOCK 16
#define SERIES 1

struct number {
    double re, im;
};

static long n, rows, columns;
static struct number *data, *other, *spectrum;
// The powers of exp(-2 pi i / length) for the three lengths.
static struct number *roots, *row_roots, *column_roots;

static struct number times(struct number a, struct number b) {
    return (struct number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static struct number input(long i) {
    return (struct number){uniform_at(SERIES, 2 * i) - 0.5, uniform_at(SERIES, 2 * i + 1) - 0.5};
}

static struct number *roots_of(long length) {
    struct number *all = room_for(length, sizeof *all);
    for (long i = 0; i < length; i++) sincos(-2 * M_PI * i / length, &all[i].im, &all[i].re);
    return all;
}

static void transform_row(struct number *row, long length, const struct number *powers, bool back) {
    for (long i = 1, j = 0; i < length; i++) {
        long bit = length >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            struct number x = row[i];
            row[i] = row[j];
            row[j] = x;
        }
    }
    for (long half = 1; half < length; half *= 2) {
        long stride = length / (2 * half);
        for (long base = 0; base < length; base += 2 * half) {
            for (long i = 0; i < half; i++) {
                struct number w = powers[i * stride];
                if (back) w.im = -w.im;
                struct number a = row[base + i], b = times(w, row[base + half + i]);
                row[base + i] = (struct number){a.re + b.re, a.im + b.im};
                row[base + half + i] = (struct number){a.re - b.re, a.im - b.im};
            }
        }
    }
}

// `to` becomes the transposed of `from`, which is `high` by `wide`; this thread's part of the rows of `to`.
static void transpose(struct number *to, const struct number *from, long high, long wide, int thread) {
    struct range own = share_of(wide, thread);
    for (long c = own.from; c < own.to; c += BLOCK) {
        for (long r = 0; r < high; r += BLOCK) {
            for (long y = c; y < c + BLOCK && y < own.to; y++) {
                for (long x = r; x < r + BLOCK && x < high; x++) to[y * high + x] = from[x * wide + y];
            }
        }
    }
}

static void transform(int thread, bool back) {
    transpose(other, data, rows, columns, thread);
    barrier();
    struct range own = share_of(columns, thread);
    for (long c = own.from; c < own.to; c++) {
        transform_row(other + c * rows, rows, row_roots, back);
        for (long k = 0; k < rows; k++) {
            struct number w = roots[c * k];
            if (back) w.im = -w.im;
            other[c * rows + k] = times(other[c * rows + k], w);
        }
    }
    barrier();
    transpose(data, other, columns, rows, thread);
    barrier();
    own = share_of(rows, thread);
    for (long r = own.from; r < own.to; r++) transform_row(data + r * columns, columns, column_roots, back);
    barrier();
    transpose(other, data, rows, columns, thread);
    barrier();
    own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        data[i] = other[i];
        if (back) data[i] = (struct number){data[i].re / n, data[i].im / n};
    }
    barrier();
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) data[i] = input(i);
    barrier();
    for (int round = 0; round < ROUNDS; round++) {
        transform(thread, false);
        if (round == 0) memcpy(spectrum + own.from, data + own.from, (own.to - own.from) * sizeof *data);
        transform(thread, true);
    }
}

// One number of the spectrum by the definition.
static void check_frequency(long k) {
    struct number sum = {0, 0};
    for (long i = 0; i < n; i++) {
        struct number term = times(input(i), roots[(unsigned long)i * k % n]);
        sum = (struct number){sum.re + term.re, sum.im + term.im};
    }
    expect(fabs(sum.re - spectrum[k].re) < 1e-9 * n && fabs(sum.im - spectrum[k].im) < 1e-9 * n);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){10, 20, 22});
    expect(kernel.size >= 2 && kernel.size <= 26);
    n = 1l << kernel.size;
    rows = 1l << kernel.size / 2;
    columns = n / rows;
    data = room_for(n, sizeof *data);
    other = room_for(n, sizeof *other);
    spectrum = room_for(n, sizeof *spectrum);
    roots = roots_of(n);
    row_roots = roots_of(rows);
    column_roots = roots_of(columns);
    in_parallel(body);
    for (long i = 0; i < (kernel.thorough ? n : 3); i++) check_frequency(kernel.thorough ? i : (long)(random_at(2, i) % n));
    for (long i = 0; i < n; i++) {
        struct number was = input(i);
        expect(fabs(was.re - data[i].re) < 1e-9 && fabs(was.im - data[i].im) < 1e-9);
    }
    kernel_end(checksum_of(checksum_of(0, spectrum, n * sizeof *data), data, n * sizeof *data));
}
