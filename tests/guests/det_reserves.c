// Address space that a program reserves, and never uses as a whole: a terabyte before there are threads, and one by a thread. What is made accessible of it
// is memory like any other, for all threads.
#include "guest.h"

#define ALL (1ul << 40)
#define PIECE (1ul << 20)

static char *first, *second;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *reserve(void) {
    char *at = mmap(NULL, ALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(at != MAP_FAILED);
    return at;
}

static void open_piece(char *at) {
    must(mprotect(at, PIECE, PROT_READ | PROT_WRITE));
    expect(at[0] == 0 && at[PIECE - 1] == 0);
    at[0] = 1, at[PIECE - 1] = 2;
}

static void *reserves(void *unused) {
    ok(pthread_mutex_lock(&lock));
    second = reserve();
    open_piece(second + ALL / 2);
    open_piece(first + ALL / 2);
    // The other way to open a piece, as runtimes of languages do.
    char *at = mmap(first + ALL / 4, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    expect(at == first + ALL / 4);
    at[0] = 3;
    ok(pthread_mutex_unlock(&lock));
    return unused;
}

static void *looks(void *unused) {
    for (bool there = false; !there;) {
        ok(pthread_mutex_lock(&lock));
        there = second != NULL;
        ok(pthread_mutex_unlock(&lock));
    }
    expect(second[ALL / 2] == 1 && second[ALL / 2 + PIECE - 1] == 2);
    expect(first[ALL / 2] == 1 && first[ALL / 4] == 3);
    return unused;
}

int main(void) {
    first = reserve();
    open_piece(first);
    pthread_t a = start(looks, NULL), b = start(reserves, NULL);
    finish(a), finish(b);
    expect(first[0] == 1 && first[PIECE - 1] == 2 && second[ALL / 2] == 1);
    // What is given back is full of zeros when it is opened again.
    must(madvise(second + ALL / 2, PIECE, MADV_DONTNEED));
    must(mprotect(second + ALL / 2, PIECE, PROT_NONE));
    must(mprotect(second + ALL / 2, PIECE, PROT_READ | PROT_WRITE));
    expect(second[ALL / 2] == 0);
    must(munmap(first, ALL));
    must(munmap(second, ALL));
    second = NULL;
    a = start(looks, NULL), first = NULL;
    ok(pthread_mutex_lock(&lock));
    first = reserve(), second = reserve();
    open_piece(first + ALL / 2), open_piece(second + ALL / 2), open_piece(first + ALL / 4);
    first[ALL / 4] = 3;
    ok(pthread_mutex_unlock(&lock));
    finish(a);
    say("done\n");
}
