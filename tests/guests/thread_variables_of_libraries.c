// Variables of threads in libraries that come and go: threads use them for the first time at the same time, while other libraries with such
// variables are loaded and unloaded, and threads begin and end.
// libraries: -ldl
// run: 4 20
#include "guest.h"
#include <dlfcn.h>

enum { MOST = 16 };

static char counting[PATH_MAX], plugin[PATH_MAX];
static int threads, rounds;
static pthread_barrier_t barrier;
static void *library;
static long (*volatile next)(void);

static void meet(void) {
    int r = pthread_barrier_wait(&barrier);
    expect(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
}

static long use(int times) {
    long sum = 0;
    for (int i = 0; i < times; i++) sum = sum * 3 + next();
    return sum;
}

static void *use_twice(void *unused) {
    (void)unused;
    return (void *)use(2);
}

static void load_and_unload(void) {
    void *other = dlopen(plugin, RTLD_NOW);
    expect(other);
    expect(dlclose(other) == 0);
}

static void *body(void *p) {
    long me = (long)p, sum = 0;
    for (int i = 0; i < rounds; i++) {
        if (me == 0) {
            library = dlopen(counting, i % 2 ? RTLD_NOW : RTLD_LAZY);
            expect(library);
            next = (long (*)(void))dlsym(library, "counting_next");
            expect(next);
        }
        if (me == 1) load_and_unload();
        meet();
        if (me == 2) sum += (long)finish(start(use_twice, NULL));
        sum += use(3);
        if (me == 1) load_and_unload();
        sum += use(3);
        meet();
        if (me == 0) expect(dlclose(library) == 0);
    }
    return (void *)sum;
}

int main(int argc, char **argv) {
    threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 20);
    expect(3 <= threads && threads <= MOST);
    ssize_t n = must(readlink("/proc/self/exe", counting, sizeof counting - 32));
    counting[n] = 0;
    *strrchr(counting, '/') = 0;
    snprintf(plugin, sizeof plugin, "%.*s/libraries/plugin.so", (int)sizeof plugin - 32, counting);
    strcat(counting, "/libraries/counting.so");
    ok(pthread_barrier_init(&barrier, NULL, threads));
    pthread_t ids[MOST];
    for (long i = 0; i < threads; i++) ids[i] = start(body, (void *)i);
    long sum = 0;
    for (int i = 0; i < threads; i++) sum = sum * 17 + (long)finish(ids[i]);
    say("%d threads, sum %ld\n", threads, sum);
}
