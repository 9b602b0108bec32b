// A library that is loaded and unloaded by several threads at any time; it starts a thread when it comes, and ends it when it goes.
// libraries: -ldl
// run: 4 8
#include "guest.h"
#include <dlfcn.h>

static char path[PATH_MAX];
static int rounds;

static void *body(void *p) {
    long sum = 0;
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen(path, i % 2 ? RTLD_NOW : RTLD_LAZY);
        if (!library) say("%s\n", dlerror());
        expect(library);
        long (*ask)(int, long *) = (long (*)(int, long *))dlsym(library, "plugin_ask");
        expect(ask);
        for (int k = 0; k < 5; k++) {
            long before;
            expect(ask(k, &before) == k * k);
            sum = sum * 31 + before;
        }
        expect(dlsym(library, "no such function") == NULL && dlerror());
        expect(dlclose(library) == 0);
    }
    (void)p;
    return (void *)sum;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 8);
    ssize_t n = must(readlink("/proc/self/exe", path, sizeof path - 32));
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/libraries/plugin.so");
    // With one thread alone first: nothing has been looked at yet.
    body(NULL);
    pthread_t ids[64];
    expect(threads <= 64);
    for (int i = 0; i < threads; i++) ids[i] = start(body, NULL);
    long sum = 0;
    for (int i = 0; i < threads; i++) sum = sum * 17 + (long)finish(ids[i]);
    expect(dlopen("/nonexistent/library.so", RTLD_NOW) == NULL);
    say("%d threads, sum %ld\n", threads, sum);
}
