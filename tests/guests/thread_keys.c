// Keys of threads: as many as there are, destructors again and again, keys deleted and made anew while values of the old ones lie about.
#include "guest.h"

static pthread_key_t keys[PTHREAD_KEYS_MAX], again, first, second;
static _Atomic int calls, order;

static void counts(void *value) {
    calls++;
    expect(value != NULL);
}
// Sets itself again, for ever: libc stops after a number of rounds.
static void returns(void *value) {
    calls++;
    ok(pthread_setspecific(again, value));
}
// Sets the other one, which has to be called in the next round.
static void sets_second(void *value) {
    order = order * 10 + 1;
    ok(pthread_setspecific(second, value));
}
static void is_second(void *value) {
    order = order * 10 + 2;
    expect(pthread_getspecific(second) == NULL);
    free(value);
}

static void *sets_all(void *p) {
    long count = (long)p;
    for (long i = 0; i < count; i++) {
        expect(pthread_getspecific(keys[i]) == NULL);
        ok(pthread_setspecific(keys[i], (void *)(i + 1)));
    }
    for (long i = 0; i < count; i++) expect(pthread_getspecific(keys[i]) == (void *)(i + 1));
    return NULL;
}

static void *sets_one(void *key) {
    ok(pthread_setspecific(*(pthread_key_t *)key, malloc(10)));
    if (key == &first) pthread_exit(NULL);
    return NULL;
}

static _Atomic int there, go;
static void *keeps(void *unused) {
    ok(pthread_setspecific(keys[0], (void *)77));
    there = 1;
    while (!go) sched_yield();
    // Deleted and made anew in the meantime: the new key has no value here.
    expect(pthread_getspecific(keys[0]) == NULL);
    return unused;
}

int main(void) {
    long count = 0;
    while (count < PTHREAD_KEYS_MAX) {
        int r = pthread_key_create(&keys[count], counts);
        if (r == EAGAIN) break;
        ok(r);
        count++;
    }
    pthread_key_t more;
    expect(pthread_key_create(&more, NULL) == EAGAIN);
    expect(count > 900);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(sets_all, (void *)count);
    for (int i = 0; i < 3; i++) finish(threads[i]);
    expect(calls == 3 * count);
    say("%ld keys\n", count);
    for (long i = 0; i < count; i++) ok(pthread_key_delete(keys[i]));
    expect(pthread_key_delete(keys[0]) == EINVAL && pthread_setspecific(keys[0], &more) == EINVAL);

    calls = 0;
    ok(pthread_key_create(&again, returns));
    pthread_t thread = start(sets_one, &again);
    finish(thread);
    expect(calls == PTHREAD_DESTRUCTOR_ITERATIONS);
    ok(pthread_key_delete(again));
    ok(pthread_key_create(&second, is_second));
    ok(pthread_key_create(&first, sets_second));
    finish(start(sets_one, &first));
    expect(order == 12);

    calls = 0;
    ok(pthread_key_create(&keys[0], counts));
    thread = start(keeps, NULL);
    while (!there) sched_yield();
    ok(pthread_key_delete(keys[0]));
    pthread_key_t anew;
    ok(pthread_key_create(&anew, counts));
    expect(anew == keys[0]);
    go = 1;
    finish(thread);
    expect(calls == 0);
    say("done\n");
}
