// Detached threads, thread-local variables, keys with destructors, names of threads.
#include "guest.h"
#include <sys/prctl.h>

static __thread uint64_t own = 5;
static __thread char large[10000];
static pthread_key_t key;
static sem_t ended;
static _Atomic uint64_t destroyed;

static void destructor(void *value) {
    destroyed += (uintptr_t)value;
    if ((uintptr_t)value > 1000) ok(pthread_setspecific(key, (char *)value - 1000));
}

static void *body(void *p) {
    expect(own == 5 && large[9999] == 0);
    own += (uintptr_t)p;
    large[9999] = 1;
    ok(pthread_setspecific(key, (void *)(1000 + own)));
    char name[16];
    snprintf(name, sizeof name, "guest %ld", (long)(intptr_t)p);
    ok(pthread_setname_np(pthread_self(), name));
    char back[16];
    must(prctl(PR_GET_NAME, back));
    expect(strcmp(name, back) == 0);
    say("variable at 0x%lx\n", (unsigned long)&own);
    must(sem_post(&ended));
    return NULL;
}

int main(void) {
    must(sem_init(&ended, 0, 0));
    ok(pthread_key_create(&key, destructor));
    pthread_attr_t detached;
    ok(pthread_attr_init(&detached));
    ok(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    pthread_t thread;
    for (uintptr_t i = 0; i < 20; i++) ok(pthread_create(&thread, &detached, body, (void *)i));
    for (int i = 0; i < 20; i++) must(sem_wait(&ended));
    pthread_t last = start(body, (void *)50);
    finish(last);
    // Destructors of detached threads may still be running: wait until all have.
    uint64_t total = 0;
    for (uint64_t i = 0; i <= 20; i++) total += 2 * ((i == 20 ? 50 : i) + 5) + 1000;
    while (destroyed != total) sched_yield();
    expect(own == 5);
    say("destructors saw %lu\n", (unsigned long)destroyed);
}
