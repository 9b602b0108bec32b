// Code that comes when there are threads already: a library that a thread loads, with a lock of its own, and the C++ runtime with its guards of
// static variables. Others use it at once, and none of them got it from the file.
// libraries: -ldl
#include "guest.h"
#include <dlfcn.h>

enum { THREADS = 4, ROUNDS = 200 };
static char path[PATH_MAX];
static pthread_barrier_t barrier;
static long (*count)(int);
static int (*acquire)(uint64_t *);
static void (*release)(uint64_t *);
static uint64_t guards[8];
static long initialised[8];
static uint64_t orders[THREADS];

static void *find(void *library, const char *name) {
    void *at = dlsym(library, name);
    if (!at) say("%s\n", dlerror());
    expect(at);
    return at;
}

static void *body(void *p) {
    intptr_t me = (intptr_t)p;
    if (me == 1) {
        void *library = dlopen(path, RTLD_NOW);
        if (!library) say("%s\n", dlerror());
        expect(library);
        count = (long (*)(int))find(library, "own_lock_count");
        library = dlopen("libstdc++.so.6", RTLD_NOW);
        expect(library);
        acquire = (int (*)(uint64_t *))find(library, "__cxa_guard_acquire");
        release = (void (*)(uint64_t *))find(library, "__cxa_guard_release");
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) orders[me] = orders[me] * 31 + count(me);
    for (int i = 0; i < 8; i++) {
        if (!acquire(&guards[i])) continue;
        initialised[i] += me + 1;
        burn(1000);
        release(&guards[i]);
    }
    return NULL;
}

int main(void) {
    ssize_t n = must(readlink("/proc/self/exe", path, sizeof path - 40));
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/libraries/own_lock.so");
    pthread_t threads[THREADS];
    ok(pthread_barrier_init(&barrier, NULL, THREADS));
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    expect(library);
    long guarded = ((long (*)(void))find(library, "own_lock_guarded"))();
    long own = ((long (*)(void))find(library, "own_lock_own"))();
    expect(guarded == THREADS * ROUNDS && own == THREADS * ROUNDS);
    for (int i = 0; i < 8; i++) expect(1 <= initialised[i] && initialised[i] <= THREADS);
    uint64_t order = hash_bytes(orders, sizeof orders) ^ hash_bytes(initialised, sizeof initialised);
    say("%ld counted, in the order %lu\n", guarded, order);
}
