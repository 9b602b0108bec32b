// A library that has a thread of its own as long as it is loaded: its constructor starts it, its destructor ends it.
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread;
static int ends;
static long asked, answered;
static long *table;
static __thread long calls;

static void *serve(void *p) {
    pthread_mutex_lock(&lock);
    while (!ends) {
        if (answered < asked) {
            answered++;
            pthread_cond_broadcast(&news);
        } else {
            pthread_cond_wait(&news, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void fill(void) {
    table = calloc(64, sizeof *table);
    for (int i = 0; table && i < 64; i++) table[i] = i * i;
}

__attribute__((constructor)) static void begin(void) {
    if (pthread_create(&thread, NULL, serve, NULL) != 0) abort();
}

__attribute__((destructor)) static void end(void) {
    pthread_mutex_lock(&lock);
    ends = 1;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    if (pthread_join(thread, NULL) != 0) abort();
    free(table);
}

// Has the library's thread answer a question; the square of `i`. How many were answered before is left in `before`.
long plugin_ask(int i, long *before) {
    static long total;
    pthread_once(&once, fill);
    calls++;
    *before = __atomic_fetch_add(&total, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    long mine = ++asked;
    pthread_cond_broadcast(&news);
    while (answered < mine) pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
    return table[i % 64] + (calls == 0);
}
