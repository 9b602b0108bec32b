// Who goes first at a read-write lock while a writer waits: other readers, by default; the writer, where the lock prefers it.
#include "guest.h"

static pthread_rwlock_t lock;
static _Atomic int waiting, written;

static void *writes(void *unused) {
    waiting = 1;
    ok(pthread_rwlock_wrlock(&lock));
    written = 1;
    ok(pthread_rwlock_unlock(&lock));
    return unused;
}

static void *reads(void *unused) {
    ok(pthread_rwlock_rdlock(&lock));
    intptr_t after = written;
    ok(pthread_rwlock_unlock(&lock));
    return unused ? NULL : (void *)after;
}

int main(void) {
    static const int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
    pthread_rwlockattr_t attributes;
    ok(pthread_rwlockattr_init(&attributes));
    expect(pthread_rwlockattr_setkind_np(&attributes, 77) == EINVAL);
    for (int kind = 0; kind < 3; kind++) {
        ok(pthread_rwlockattr_setkind_np(&attributes, kinds[kind]));
        ok(pthread_rwlock_init(&lock, &attributes));
        waiting = written = 0;
        ok(pthread_rwlock_rdlock(&lock));
        pthread_t writer = start(writes, NULL);
        while (!waiting) sched_yield();
        if (kind < 2) {
            // Readers come through, and so does this thread a second time.
            ok(pthread_rwlock_rdlock(&lock));
            ok(pthread_rwlock_unlock(&lock));
            for (int i = 0; i < 3; i++) expect(finish(start(reads, NULL)) == NULL);
            expect(!written);
            ok(pthread_rwlock_unlock(&lock));
        } else {
            // As soon as the writer really waits, nobody else comes in.
            for (;;) {
                int r = pthread_rwlock_tryrdlock(&lock);
                if (r == EBUSY) break;
                ok(r);
                ok(pthread_rwlock_unlock(&lock));
                sched_yield();
            }
            pthread_t reader = start(reads, NULL);
            ok(pthread_rwlock_unlock(&lock));
            expect(finish(reader) == (void *)1);
        }
        finish(writer);
        expect(written);
        ok(pthread_rwlock_destroy(&lock));
        say("kind %d: done\n", kind);
    }
}
