// Threads, or processes, that meet again and again and wait for each other by looking at a word in memory: with `pause` and without, in the ways in which
// `pause` stands in code, with a handler that runs meanwhile, and with state that changes as they wait. Where one thread runs at a time, each
// meeting is to cost a hand-off, not a slice.
// variant: O0 -O0
// variant: O2 -O2
// run: pause 400
// run: plain 400
// run: backwards 400
// run: trap 400
// run: back-off 400
// run: counted 400
// run: clock 400
// run: processes 400
// run: signals 400
// run: three 400
#include "guest.h"

#include <sys/wait.h>

#define PAUSE __asm__ volatile("pause")
#define ARE(what) (strcmp(kind, what) == 0)

typedef struct {
    volatile long turn;
} Table;

static Table *table;
static long rounds, parties = 2;
static const char *kind;
static volatile long handled, looked;

static uint64_t clock_now(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

// A pause whose room for a jump lies before it: control comes in right behind it.
static void backwards(volatile long *word, long wanted) {
    __asm__ volatile(
        "jmp 2f\n"
        "1: mov $0x12345678, %%eax\n"
        "pause\n"
        "2: cmp %1, (%0)\n"
        "jne 1b\n" ::"r"(word), "r"(wanted) : "rax", "cc", "memory");
}

// A pause with no room at all: control comes in before it and behind it.
static void trap(volatile long *word, long wanted) {
    __asm__ volatile(
        "jmp 2f\n"
        "1: pause\n"
        "2: cmp %1, (%0)\n"
        "jne 1b\n" ::"r"(word), "r"(wanted) : "cc", "memory");
}

static void await(long wanted) {
    volatile long *word = &table->turn;
    if (ARE("plain")) {
        while (*word != wanted) {
        }
    } else if (ARE("backwards")) {
        backwards(word, wanted);
    } else if (ARE("trap")) {
        trap(word, wanted);
    } else if (ARE("back-off")) {
        for (long n = 1; *word != wanted; n = n < 64 ? 2 * n : n)
            for (volatile long i = 0; i < n; i++) PAUSE;
    } else if (ARE("counted")) {
        while (*word != wanted) {
            looked++;
            PAUSE;
        }
    } else if (ARE("clock")) {
        // As libraries for linear algebra do it: they sleep when it takes long.
        uint64_t begun = clock_now();
        while (*word != wanted) expect(clock_now() - begun < (uint64_t)1 << 62);
    } else {
        while (*word != wanted) PAUSE;
    }
}

static void meet(long me) {
    for (long i = 0; i < rounds; i++) {
        await(i * parties + me);
        table->turn++;
    }
}

static void *body(void *p) {
    meet((intptr_t)p);
    return NULL;
}

static void handler(int signal) {
    (void)signal;
    handled++;
}

// A signal comes while its thread waits, and the thread waits on.
static void *interrupts(void *p) {
    pthread_t waiting = *(pthread_t *)p;
    for (long i = 0; i < rounds; i++) {
        await(2 * i + 1);
        long before = handled;
        expect(pthread_kill(waiting, SIGUSR1) == 0);
        while (handled == before) PAUSE;
        table->turn++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    kind = argc > 1 ? argv[1] : "pause";
    rounds = number(argc, argv, 2, 400);
    table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (ARE("processes") ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    expect(table != MAP_FAILED);
    if (ARE("processes")) {
        pid_t child = fork();
        expect(child >= 0);
        meet(child == 0);
        if (child == 0) _exit(0);
        int status;
        expect(waitpid(child, &status, 0) == child && status == 0);
    } else if (ARE("signals")) {
        struct sigaction action = {.sa_handler = handler};
        expect(sigaction(SIGUSR1, &action, NULL) == 0);
        pthread_t self = pthread_self(), other = start(interrupts, &self);
        meet(0);
        finish(other);
        expect(handled == rounds);
    } else {
        parties = ARE("three") ? 3 : 2;
        pthread_t threads[3];
        for (long i = 0; i < parties; i++) threads[i] = start(body, (void *)i);
        for (long i = 0; i < parties; i++) finish(threads[i]);
    }
    expect(table->turn == rounds * parties);
    say("%ld meetings, pid %d\n", rounds, getpid());
}
