// Threads with mutexes, a condition, atomic words and system calls. Built with CHANGED it is the same program with more code: assertions, prints
// that no recording knows of, other sizes of functions and of what lies in front of its variables. What else it is built with says what it does wrong.
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "tell.h"

enum { THREADS = 3 };

#if defined CHANGED && !defined SAME_VARIABLES
#define MORE_VARIABLES
// In front of the program's own.
static long seen[77] = {1};
static volatile double padding[700];
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int rounds = 20, turn;
static long sum;
static _Atomic long count;
static atomic_flag busy = ATOMIC_FLAG_INIT;
static long slots[THREADS];
static _Atomic long *of_main;
static char line[128];
static struct stat status;

static void begin(void) {
    tell("begins\n");
    sum = 100;
}

// Functions of their own, which are built alike: plain accesses in a function that changes a word in one step may be ordered as well.
// A plain load of such a word elsewhere is nobody's to see.
static __attribute__((noipa)) long add(_Atomic long *word, long n) {
    return atomic_fetch_add(word, n);
}

static __attribute__((noipa)) void enter(void) {
    while (atomic_flag_test_and_set(&busy)) sched_yield();
}

static __attribute__((noipa)) void leave(void) {
    atomic_flag_clear(&busy);
}

static void pass(pthread_mutex_t *m) {
    pthread_mutex_lock(m);
    pthread_mutex_unlock(m);
}

static void *work(void *which) {
    int me = (int)(long)which;
    char text[64];
    for (int i = 0; i < rounds; i++) {
        pthread_once(&once, begin);
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != me) pthread_cond_wait(&changed, &mutex);
        turn++;
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        sum += now.tv_nsec % 1000;
        check(sum >= 100);
        tell("thread %d, round %d, sum %ld\n", me, i, sum);
#ifdef MORE_VARIABLES
        volatile char further[200];
        for (unsigned k = 0; k < sizeof further; k++) further[k] = (char)(me + k);
        seen[i % 77] += further[i];
        padding[i] += seen[i % 77];
#endif
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        add(&count, 1);
        add(of_main, me);
        char number[32];
        snprintf(number, sizeof number, "%d %s", i, line);
        char *copy = strdup(number);
        slots[me] += copy[0] == 'x';
        free(copy);
        enter();
        slots[me] += i;
        leave();
        if (i % 7 == me) {
            size_t n = 0;
            text[n++] = (char)('0' + me);
            text[n++] = (char)('0' + (add(&count, 0) & 7));
            text[n++] = '\n';
            if (write(1, text, n) != (ssize_t)n) abort();
        }
    }
    check(slots[me] == rounds * (rounds - 1) / 2);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    pthread_t threads[THREADS];
    _Atomic long here = 0;
#ifdef MORE_VARIABLES
    volatile char more[500];
    for (unsigned k = 0; k < sizeof more; k++) more[k] = (char)k;
#endif
    of_main = &here;
    char *volatile block = malloc(300);
    free(block);
    if (read(0, line, sizeof line - 1) < 0) return 2;
    if (fstat(1, &status)) return 2;
    check(line[0] == 'h');
    tell("read %s", line);
    // Of operations like these a log only tells how many there were.
    for (int i = 0; i < 3; i++) {
#ifdef ANOTHER_MUTEX
        pass(i == 2 ? &second : &first);
#else
        pass(&first);
#endif
#ifdef ONE_LOCK_LESS
        if (i == 1) continue;
#endif
        pass(&second);
    }
#ifdef ANOTHER_LOCK
    pass(&first);
#endif
#ifdef ANOTHER_CALL
    getppid();
#endif
#ifdef PLAIN_PRINT
    fprintf(stderr, "worker: plainly\n");
#endif
#ifdef FAILING
    assert(line[0] == 'x');
#endif
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i)) return 2;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    line[strcspn(line, "\n")] = 0;
    printf("%s: sum %ld, count %ld and %ld, turn %d, mode %o\n", line, sum, (long)count, (long)here, turn, status.st_mode);
    return (int)(sum % 50);
}
