// What tests/ask.rs asks of a recording: values of several types at a line that threads pass, memory that is written in several ways, a function that calls
// itself. The tests know the names, the numbers, and the comments that begin with "here".
// flags: -O0
// run:
// run: crash => SIGSEGV
#include "guest.h"

#define ROUNDS 4

enum color { RED, GREEN = 5, BLUE = -1 };

struct node {
    int value;
    struct node *next;
};

static int total;
static struct node last;
static char letters[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void deposit(int amount, struct node *node) {
    enum color color = amount == 1 ? RED : amount == 2 ? GREEN : BLUE;
    char letter = (char)('a' + amount);
    unsigned char byte = (unsigned char)(255 + amount);
    const char *name = amount == 1 ? "one" : "other";
    double half = amount / 2.0;
    total += amount; // here it grows
    (void)color, (void)letter, (void)byte, (void)name, (void)half, (void)node;
}

static int factorial(int n) {
    if (n <= 1) return 1;
    return n * factorial(n - 1);
}

static void *saver(void *arg) {
    int me = (int)(long)arg;
    struct node node = {10 * me, NULL};
    for (int round = 0; round < ROUNDS; round++) {
        must(pthread_mutex_lock(&lock));
        // A line that another thread passes, too.
        deposit(me, round % 2 ? &node : NULL);
        last = node; // here it is copied
        must(pthread_mutex_unlock(&lock));
        sched_yield();
    }
    return NULL;
}

static void fill(void) {
    int ends[2];
    must(pipe(ends));
    expect(write(ends[1], "abcdefg", 8) == 8);
    expect(read(ends[0], letters, sizeof letters) == 8); // here the kernel writes
    letters[0] = 'z';
    letters[0] = 'z'; // here nothing changes
}

static void crash(struct node *node) {
    node->value = 1;
}

int main(int argc, char **argv) {
    (void)argv;
    struct rlimit { unsigned long soft, hard; } none = {0, 0};
    must(syscall(SYS_setrlimit, 4, &none));
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) must(pthread_create(&threads[i], NULL, saver, (void *)(i + 1)));
    for (int i = 0; i < 2; i++) must(pthread_join(threads[i], NULL));
    fill();
    say("total %d, 5! is %d, letters %s\n", total, factorial(5), letters);
    if (argc > 1) crash(last.next);
    return 0;
}
