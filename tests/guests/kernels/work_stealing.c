// In how many ways SIZE queens stand on a board of SIZE by SIZE without attacking each other. Boards with few queens are tasks; each thread
// takes the newest of its own, or steals the oldest of another's, from Chase and Lev's deques (SPAA 2005) made of C11 atomics. A thread without work looks
// for some, yielding the processor in between, until no task is left anywhere.
#include "kernel.h"

#define MAX_QUEENS 16
// Boards with so many queens are not split any more.
#define ENOUGH_QUEENS 5
// More than one thread can have: each row it goes down leaves at most SIZE siblings behind.
#define ROOM 512
#define NOTHING 0

struct deque {
    APART _Atomic int64_t top;
    APART _Atomic int64_t bottom;
    APART _Atomic uint64_t tasks[ROOM];
};

static const uint64_t SOLUTIONS[MAX_QUEENS + 1] = {1,  1,   0,   0,    2,     10,    4,      40,
                                                   92, 352, 724, 2680, 14200, 73712, 365596, 2279184, 14772512};
static struct deque deques[MAX_THREADS];
// Tasks that are not finished.
static APART _Atomic int64_t unfinished;
static struct APART {
    uint64_t solutions, tasks, stolen;
} results[MAX_THREADS];
static int n;

#define read(object, order) counted(atomic_load_explicit(object, memory_order_##order))
#define write(object, value, order) counted(atomic_store_explicit(object, value, memory_order_##order))
#define fence(order) counted(atomic_thread_fence(memory_order_##order))

static void push(struct deque *d, uint64_t task) {
    int64_t bottom = read(&d->bottom, relaxed), top = read(&d->top, acquire);
    expect(bottom - top < ROOM);
    write(&d->tasks[bottom % ROOM], task, relaxed);
    fence(release);
    write(&d->bottom, bottom + 1, relaxed);
}

// Whether the oldest task, number `top`, is ours and nobody else's.
static bool win(struct deque *d, int64_t top) {
    return counted(atomic_compare_exchange_strong_explicit(&d->top, &top, top + 1, memory_order_seq_cst, memory_order_relaxed));
}

static uint64_t pop(struct deque *d) {
    int64_t bottom = read(&d->bottom, relaxed) - 1;
    write(&d->bottom, bottom, relaxed);
    fence(seq_cst);
    int64_t top = read(&d->top, relaxed);
    if (top < bottom) return read(&d->tasks[bottom % ROOM], relaxed);
    uint64_t task = NOTHING;
    if (top == bottom && win(d, top)) task = read(&d->tasks[bottom % ROOM], relaxed);
    write(&d->bottom, bottom + 1, relaxed);
    return task;
}

static uint64_t steal(struct deque *d) {
    int64_t top = read(&d->top, acquire);
    fence(seq_cst);
    int64_t bottom = read(&d->bottom, acquire);
    if (top >= bottom) return NOTHING;
    uint64_t task = read(&d->tasks[top % ROOM], relaxed);
    return win(d, top) ? task : NOTHING;
}

// A board: the columns and diagonals that are attacked in the next row, and, above them, a 1 and the number of the row.
static uint64_t board(uint64_t columns, uint64_t left, uint64_t right, uint64_t row) {
    return columns | left << 16 | right << 32 | (16 | row) << 48;
}

static uint64_t count(uint32_t columns, uint32_t left, uint32_t right) {
    uint32_t all = (1u << n) - 1, sum = 0;
    if (columns == all) return 1;
    for (uint32_t free = all & ~(columns | left | right); free; free &= free - 1) {
        uint32_t queen = free & -free;
        sum += count(columns | queen, (left | queen) << 1 & all, (right | queen) >> 1);
    }
    return sum;
}

static void work_on(int thread, uint64_t task) {
    uint32_t columns = task & 0xffff, left = task >> 16 & 0xffff, right = task >> 32 & 0xffff, row = task >> 48 & 15;
    uint32_t all = (1u << n) - 1;
    int64_t more = 0;
    results[thread].tasks++;
    if (row == ENOUGH_QUEENS || (int)row == n) {
        results[thread].solutions += count(columns, left, right);
    } else {
        // The new ones count before anyone can finish them.
        uint32_t free = all & ~(columns | left | right);
        more = __builtin_popcount(free);
        if (more > 0) counted(atomic_fetch_add(&unfinished, more));
        for (; free; free &= free - 1) {
            uint32_t queen = free & -free;
            push(&deques[thread], board(columns | queen, (left | queen) << 1 & all, (right | queen) >> 1, row + 1));
        }
    }
    counted(atomic_fetch_sub(&unfinished, 1));
}

static void body(int thread) {
    while (read(&unfinished, acquire) > 0) {
        uint64_t task = pop(&deques[thread]);
        for (int t = 1; task == NOTHING && t < kernel.threads; t++) {
            task = steal(&deques[(thread + t) % kernel.threads]);
            results[thread].stolen += task != NOTHING;
        }
        if (task != NOTHING) {
            work_on(thread, task);
        } else {
            sched_yield();
        }
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){9, 15, 16});
    n = kernel.size;
    expect(n <= MAX_QUEENS);
    atomic_store(&unfinished, 1);
    push(&deques[0], board(0, 0, 0, 0));
    in_parallel(body);
    uint64_t solutions = 0, tasks = 0, stolen = 0;
    for (int t = 0; t < kernel.threads; t++) {
        solutions += results[t].solutions;
        tasks += results[t].tasks;
        stolen += results[t].stolen;
    }
    expect(solutions == SOLUTIONS[n]);
    if (kernel.verbose) fprintf(stderr, "stole %lu of %lu tasks\n", stolen, tasks);
    kernel_end(mix(solutions) ^ tasks);
}
