// Memory of whichever allocator the program has: libc's, or another one that is loaded before it (LD_PRELOAD) or linked in, which need not define
// all that libc defines. What one function gives, another takes back; strings and lines that libc allocates are the program's to free.
// variant: own -DOWN_ALLOCATOR
#include "guest.h"
#include <dlfcn.h>
#include <malloc.h>

#ifdef OWN_ALLOCATOR
// The four functions that glibc wants from a program that brings its own allocator; the length lies before the block.
static char room[64 << 20];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size) {
    pthread_mutex_lock(&lock);
    char *p = room + used + 16;
    used += 16 + (size + 15) / 16 * 16;
    pthread_mutex_unlock(&lock);
    if (used > sizeof room) return NULL;
    *(size_t *)(p - 16) = size;
    return p;
}

void free(void *p) {
    // Whatever is given back must have come from here.
    if (p && ((char *)p < room || (char *)p >= room + used)) _exit(GUEST_FAILED);
}

void *calloc(size_t n, size_t size) {
    return malloc(n * size);
}

void *realloc(void *p, size_t size) {
    if (p && ((char *)p < room || (char *)p >= room + used)) _exit(GUEST_FAILED);
    void *q = malloc(size);
    if (p && q) memcpy(q, p, *(size_t *)((char *)p - 16) < size ? *(size_t *)((char *)p - 16) : size);
    return q;
}
#endif

enum { THREADS = 3, BLOCKS = 60 };

static void *blocks[THREADS][BLOCKS];
static pthread_barrier_t together;

static void *work(void *argument) {
    long me = (long)argument;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            char *p = i % 3 == 0 ? malloc(10 * i + 1) : i % 3 == 1 ? calloc(i + 1, 7) : reallocarray(NULL, 10, i + 1);
            expect(p != NULL);
            p[0] = (char)i;
            if (i % 4 == 0) p = reallocarray(p, 30, i + 5);
            if (i % 4 == 1) p = realloc(p, 3000);
            expect(p != NULL && p[0] == (char)i);
            blocks[me][i] = p;
        }
        pthread_barrier_wait(&together);
        // What another thread has got.
        for (int i = 0; i < BLOCKS; i++) free(blocks[(me + 1) % THREADS][i]);
        pthread_barrier_wait(&together);
    }
    return NULL;
}

int main(void) {
    ok(pthread_barrier_init(&together, NULL, THREADS));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = start(work, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    errno = 0;
    volatile size_t half = SIZE_MAX / 2;
    expect(reallocarray(NULL, half, 3) == NULL && errno == ENOMEM);
    char *copy = strdup("a copy"), *printed, *line = NULL;
    expect(asprintf(&printed, "%s of %d", copy, 5) == 11);
    FILE *f = fopen("/proc/self/comm", "r");
    size_t room_of_line = 0;
    expect(f && getline(&line, &room_of_line, f) > 0);
    fclose(f);
    // A library that is asked for by name allocates, too.
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    expect(library && dlsym(library, "cos"));
    dlclose(library);
    say("%s, %s", printed, line);
    free(copy);
    free(printed);
    free(line);
}
