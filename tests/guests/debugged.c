// What tests/debug.rs looks at with gdb: named functions, a variable that another thread spoils long before anybody notices, a crash.
// The tests know these names, and the comments that begin with "here".
// flags: -O0
// run:
// run: crash => SIGSEGV
// run: abort => SIGABRT
#include "guest.h"

#define ROUNDS 5

static int balance = 100;
static int total;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void deposit(int amount) {
    total += amount; // here it grows
}

// Writes over what is not its own.
static void spoil(int *what) {
    *what = -7; // here it is spoiled
}

static void *saver(void *arg) {
    int me = (int)(long)arg;
    for (int round = 0; round < ROUNDS; round++) {
        must(pthread_mutex_lock(&lock));
        deposit(me);
        must(pthread_mutex_unlock(&lock));
        if (me == 2 && round == 2) spoil(&balance);
        sched_yield();
    }
    return NULL;
}

static int check(int what) {
    static int *volatile nowhere;
    if (balance < 0 && what == 1) *nowhere = balance; // here it crashes
    if (balance < 0 && what == 2) abort();
    return balance;
}

int main(int argc, char **argv) {
    struct rlimit { unsigned long soft, hard; } none = {0, 0};
    must(syscall(SYS_setrlimit, 4, &none));
    int what = argc < 2 ? 0 : strcmp(argv[1], "crash") == 0 ? 1 : 2;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) must(pthread_create(&threads[i], NULL, saver, (void *)(i + 1)));
    for (int i = 0; i < 2; i++) must(pthread_join(threads[i], NULL));
    expect(total == 3 * ROUNDS);
    say("total %d\n", total);
    check(what);
    return 0;
}
