// Threads that take locks, wait for each other and write to memory that no lock protects; when asked to, some of them print in between, some much, some nothing.
// Says at the end in which order everything was had, and what came of the memory.
// run: 4 puts
#include "guest.h"
#include <sys/uio.h>

#define MOST 8
#define ROUNDS 24

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static uint64_t order, racy, words[MOST];
static int stock, threads;
static const char *what;
static FILE *file;

static void print_one(int me, int round, int i) {
    char text[64];
    bool everything = strcmp(what, "all") == 0;
    int kind = everything ? (me + round + i) % 6 : -1;
    if (kind == 0 || strcmp(what, "printf") == 0) printf("thread %d round %d line %d %s\n", me, round, i, "printf");
    if (kind == 1 || strcmp(what, "stderr") == 0) fprintf(stderr, "thread %d round %d line %d stderr\n", me, round, i);
    if (kind == 2 || strcmp(what, "puts") == 0) puts("a line of puts(3) by somebody");
    if (kind == 3 || strcmp(what, "write") == 0) {
        int n = snprintf(text, sizeof text, "thread %d round %d line %d write\n", me, round, i);
        must(write(1, text, n));
    }
    if (kind == 4 || strcmp(what, "file") == 0) fprintf(file, "thread %d round %d line %d file\n", me, round, i);
    if (kind == 5 || strcmp(what, "writev") == 0) {
        struct iovec parts[2] = {{"two ", 4}, {"parts\n", 6}};
        must(writev(1, parts, 2));
    }
    // No block that the thread has taken before is as large.
    if (strcmp(what, "memory") == 0) {
        char *volatile block = malloc((size_t)(i + 1) << 15);
        memset(block, me, (size_t)(i + 1) << 15);
        printf("%d\n", block[i]);
    }
}

// Not the same for all, and not always; sometimes dozens in one phase.
static void print(int me, int round) {
    if (what[0] == 0 || (me + round) % 3 == 0) return;
    int n = (me * 5 + round) % 7 == 0 ? 24 : (me + round) % 4;
    for (int i = 0; i < n; i++) print_one(me, round, i);
}

static void race(int me) {
    racy = mix(racy + me);
    words[(racy >> 7) % MOST] += me + 1;
}

static void *body(void *p) {
    int me = (int)(intptr_t)p;
    for (int round = 0; round < ROUNDS; round++) {
        race(me);
        print(me, round);
        ok(pthread_mutex_lock(&lock));
        order = mix(order + me);
        print(me, round + 5);
        race(me);
        if (me % 2) {
            stock++;
            ok(pthread_cond_signal(&more));
        } else {
            while (stock == 0) ok(pthread_cond_wait(&more, &lock));
            stock--;
            order = mix(order * 7 + me);
        }
        ok(pthread_mutex_unlock(&lock));
        print(me, round + 1);
        race(me);
        ok(pthread_mutex_lock(&other));
        order = mix(order * 3 + me);
        race(me);
        ok(pthread_mutex_unlock(&other));
        if (round % 6 == 4) pthread_barrier_wait(&all);
        else if (round % 6 == 5) print(me, round);
        race(me);
    }
    return NULL;
}

int main(int argc, char **argv) {
    threads = number(argc, argv, 1, 4);
    what = argc > 2 ? argv[2] : "";
    expect(threads <= MOST);
    file = tmpfile();
    expect(file);
    ok(pthread_barrier_init(&all, NULL, threads));
    pthread_t made[MOST];
    for (intptr_t i = 0; i < threads; i++) {
        made[i] = start(body, (void *)i);
        print(threads, i);
    }
    for (int i = 0; i < threads; i++) finish(made[i]);
    // What came into the file, whole lines only.
    char line[128];
    uint64_t hash = 0;
    int lines = 0;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        int a, b, c, end = 0;
        expect(sscanf(line, "thread %d round %d line %d file\n%n", &a, &b, &c, &end) == 3 && end == (int)strlen(line));
        hash = mix(hash ^ hash_bytes(line, strlen(line)));
        lines++;
    }
    for (int i = 0; i < MOST; i++) racy = mix(racy + words[i]);
    printf("%d lines in the file, %lu\n", lines, (unsigned long)hash);
    printf("order %lu memory %lu\n", (unsigned long)order, (unsigned long)racy);
}
