// Functions of libc that call back into the program, which synchronises there: an event inside an event, some levels deep.
// run: 4 20
#include "guest.h"
#include <search.h>
#include <link.h>

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t outer = PTHREAD_ONCE_INIT, inner = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t posted;
static _Atomic long order;
static long shared;
static int rounds;

static void add(long n) {
    ok(pthread_mutex_lock(&plain));
    shared = shared * 31 + n;
    ok(pthread_cond_broadcast(&changed));
    ok(pthread_mutex_unlock(&plain));
}

// Comparing locks, allocates, and sorts something else while a first comparison is asked for.
static int compare(const void *a, const void *b) {
    ok(pthread_mutex_lock(&recursive));
    int x = *(const int *)a, y = *(const int *)b;
    char *copy = malloc(1 + (x & 63));
    order++;
    free(copy);
    ok(pthread_mutex_unlock(&recursive));
    return (x > y) - (x < y);
}

static int compare_outside(const void *a, const void *b) {
    int some[4] = {3, 1, *(const int *)a & 7, 2};
    ok(pthread_mutex_lock(&recursive));
    qsort(some, 4, sizeof *some, compare);
    ok(pthread_mutex_unlock(&recursive));
    return compare(a, b);
}

static void visit(const void *node, VISIT which, int level) {
    (void)node;
    if (which == leaf || which == postorder) add(level);
}

static int header(struct dl_phdr_info *info, size_t size, void *p) {
    (void)size;
    add(info->dlpi_phnum);
    ++*(int *)p;
    return 0;
}

static void first_inner(void) { add(7); }

static void first_outer(void) {
    ok(pthread_once(&inner, first_inner));
    add(8);
    pthread_t t = start((void *(*)(void *))(void *)first_inner, NULL);
    finish(t);
}

// A key's destructor that sets the key again, twice.
static void forget(void *p) {
    add((long)p);
    if ((long)p > 1) ok(pthread_setspecific(key, (void *)((long)p - 1)));
}

static void clean(void *p) {
    add((long)p);
    must(sem_post(&posted));
}

static void handler(int signal) {
    (void)signal;
    must(sem_post(&posted));
}

static ssize_t cookie_write(void *cookie, const char *text, size_t n) {
    (void)text;
    add((long)cookie + (long)n);
    return n;
}

static void *body(void *p) {
    long me = (long)p;
    ok(pthread_once(&outer, first_outer));
    ok(pthread_setspecific(key, (void *)3));
    void *tree = NULL;
    int values[24];
    FILE *file = fopencookie((void *)me, "w", (cookie_io_functions_t){.write = cookie_write});
    expect(file);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 24; k++) values[k] = (k * 7 + i * 5 + me) % 23;
        qsort(values, 24, sizeof *values, compare_outside);
        for (int k = 1; k < 24; k++) expect(values[k - 1] <= values[k]);
        expect(bsearch(&values[5], values, 24, sizeof *values, compare));
        expect(tsearch(&values[i % 24], &tree, compare));
        twalk(tree, visit);
        fprintf(file, "%d\n", i);
        if (i % 4 == 0) expect(fflush(file) == 0);
        int modules = 0;
        dl_iterate_phdr(header, &modules);
        expect(modules > 1);
        while (tree) expect(tdelete(*(int **)tree, &tree, compare));
        ok(pthread_kill(pthread_self(), SIGUSR1));
        while (sem_wait(&posted) != 0) expect(errno == EINTR);
    }
    expect(fclose(file) == 0);
    pthread_cleanup_push(clean, (void *)(me + 100));
    pthread_cleanup_push(clean, (void *)(me + 200));
    pthread_exit((void *)me);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
}

static void last(void) {
    pthread_t t = start((void *(*)(void *))(void *)first_inner, NULL);
    finish(t);
    say("shared %ld, %ld comparisons\n", shared, (long)order);
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 20);
    ok(pthread_key_create(&key, forget));
    must(sem_init(&posted, 0, 0));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    expect(atexit(last) == 0);
    pthread_t ids[64];
    expect(threads <= 64);
    for (int i = 0; i < threads; i++) ids[i] = start(body, (void *)(long)(i + 1));
    for (int i = 0; i < threads; i++) expect(finish(ids[i]) == (void *)(long)(i + 1));
    int value;
    must(sem_getvalue(&posted, &value));
    expect(value == 2 * threads);
}
