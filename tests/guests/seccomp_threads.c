// Filters and threads: a new thread inherits, others are left alone, or get it by TSYNC, unless they have another one.
#include "filters.h"

static pthread_barrier_t step;

static void forbid(int call, unsigned flags, long wanted) {
    FILTER(filter, NUMBER, ON(call, SECCOMP_RET_ERRNO | 70), RETURN(SECCOMP_RET_ALLOW));
    expect(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) == wanted);
}

static bool forbidden(int call) {
    errno = 0;
    return syscall(call, 0) == -1 && errno == 70;
}

static void wait_here(void) {
    pthread_barrier_wait(&step);
}

static void *child(void *argument) {
    expect(forbidden(SYS_getppid));
    forbid(SYS_getuid, 0, 0);
    expect(forbidden(SYS_getuid) && forbidden(SYS_getppid));
    return argument;
}

static volatile long other_tid;

static void *worker(void *argument) {
    wait_here();
    // The main thread has a filter of its own now.
    expect(!forbidden(SYS_getppid));
    for (int i = 0; i < 50; i++) expect(!forbidden(SYS_getgid));
    wait_here();
    wait_here();
    // By TSYNC.
    expect(forbidden(SYS_getppid) && forbidden(SYS_getgid));
    forbid(SYS_getegid, 0, 0);
    other_tid = gettid_raw();
    wait_here();
    wait_here();
    expect(!forbidden(SYS_geteuid));
    wait_here();
    return argument;
}

int main(void) {
    no_new_privileges();
    ok(pthread_barrier_init(&step, NULL, 2));
    pthread_t thread = start(worker, NULL);
    forbid(SYS_getppid, 0, 0);
    expect(forbidden(SYS_getppid));
    finish(start(child, NULL));
    expect(!forbidden(SYS_getuid));
    wait_here();
    wait_here();
    forbid(SYS_getgid, SECCOMP_FILTER_FLAG_TSYNC, 0);
    wait_here();
    wait_here();
    // The other thread has one more filter: it can't be brought into line.
    forbid(SYS_geteuid, SECCOMP_FILTER_FLAG_TSYNC, other_tid);
    expect(!forbidden(SYS_geteuid));
    wait_here();
    wait_here();
    finish(thread);
    say("other thread %ld\n", other_tid);
}
