// The threads of C11: results, detached ones, mutexes of all kinds with their errors, conditions with a limit, storage with destructors.
#include "guest.h"
#include <threads.h>

static mtx_t plain, timed, recursive;
static cnd_t condition;
static tss_t storage;
static _Atomic int destroyed, detached, done;
static thread_local int own = 3;
static once_flag flag = ONCE_FLAG_INIT;
static int initialised;

static void initialise(void) { initialised++; }
static void destroy(void *p) {
    destroyed += (int)(intptr_t)p;
    if ((intptr_t)p > 100) tss_set(storage, (void *)(intptr_t)5);
}

static int body(void *p) {
    int me = (int)(intptr_t)p;
    call_once(&flag, initialise);
    expect(own == 3);
    own += me;
    expect(tss_get(storage) == NULL && tss_set(storage, (void *)(intptr_t)(100 + me)) == thrd_success);
    expect(mtx_trylock(&plain) == thrd_busy && mtx_trylock(&recursive) == thrd_busy);
    thrd_yield();
    if (me == 4) thrd_exit(-7);
    return own;
}

static int runs_alone(void *unused) {
    (void)unused;
    detached++;
    expect(mtx_lock(&timed) == thrd_success);
    done = 1;
    expect(cnd_signal(&condition) == thrd_success);
    expect(mtx_unlock(&timed) == thrd_success);
    return 0;
}

int main(void) {
    expect(mtx_init(&plain, mtx_plain) == thrd_success);
    expect(mtx_init(&timed, mtx_timed) == thrd_success);
    expect(mtx_init(&recursive, mtx_timed | mtx_recursive) == thrd_success);
    expect(cnd_init(&condition) == thrd_success);
    expect(tss_create(&storage, destroy) == thrd_success);
    expect(mtx_lock(&plain) == thrd_success);
    for (int i = 0; i < 3; i++) expect(mtx_lock(&recursive) == thrd_success);
    thrd_t threads[5];
    for (intptr_t i = 0; i < 5; i++) expect(thrd_create(&threads[i], body, (void *)i) == thrd_success);
    expect(!thrd_equal(threads[0], threads[1]) && thrd_equal(thrd_current(), thrd_current()));
    for (int i = 0; i < 5; i++) {
        int result;
        expect(thrd_join(threads[i], &result) == thrd_success && result == (i == 4 ? -7 : 3 + i));
    }
    for (int i = 0; i < 3; i++) expect(mtx_unlock(&recursive) == thrd_success);
    expect(mtx_unlock(&plain) == thrd_success);
    // 100 once (no more than 100 does not come again), four larger ones twice.
    expect(initialised == 1 && own == 3 && destroyed == 100 + 101 + 102 + 103 + 104 + 4 * 5);
    say("destroyed %d\n", (int)destroyed);

    struct timespec limit;
    expect(timespec_get(&limit, TIME_UTC) == TIME_UTC);
    limit.tv_sec += 1000;
    thrd_t alone;
    expect(mtx_timedlock(&timed, &limit) == thrd_success);
    expect(thrd_create(&alone, runs_alone, NULL) == thrd_success && thrd_detach(alone) == thrd_success);
    while (!done) expect(cnd_timedwait(&condition, &timed, &limit) == thrd_success);
    expect(detached == 1);
    expect(timespec_get(&limit, TIME_UTC) == TIME_UTC);
    int r = cnd_timedwait(&condition, &timed, &limit);
    expect(r == thrd_timedout);
    expect(mtx_unlock(&timed) == thrd_success);
    struct timespec brief = {.tv_nsec = 1000};
    expect(thrd_sleep(&brief, NULL) == 0);
    expect(thrd_sleep(&(struct timespec){.tv_nsec = -1}, NULL) < -1);
    tss_delete(storage);
    say("at %ld\n", (long)limit.tv_sec);
    // The last thread ends the process.
    thrd_exit(0);
}
