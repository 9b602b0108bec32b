// A process to attach to: threads that wait in all kinds of calls, that compute, that are in a handler on a stack of its own. It says "ready"
// when all of them are where they are to be, and goes on when it is told so on its standard input ("." ends each stage).
//   already_running [STAGES]
// run: 2 => 7
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t robust;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static volatile int stage, over;
static _Atomic int at_place;
static _Atomic long ticks;
static uint64_t sum;
static int channel[2], event;
static __thread long own_calls;
static uint64_t *shared;

static void arrived(void) {
    at_place++;
}

static void add(uint64_t value) {
    ok(pthread_mutex_lock(&lock));
    sum = mix(sum ^ value);
    ok(pthread_mutex_unlock(&lock));
}

// Waits on a condition variable for each stage, and on a reader's lock in between.
static void *on_condition(void *which) {
    ok(pthread_mutex_lock(&lock));
    arrived();
    for (int seen = 0; !over;) {
        while (stage == seen && !over) ok(pthread_cond_wait(&changed, &lock));
        seen = stage;
        own_calls++;
        ok(pthread_mutex_unlock(&lock));
        ok(pthread_rwlock_rdlock(&table));
        ok(pthread_rwlock_unlock(&table));
        ok(pthread_mutex_lock(&lock));
    }
    ok(pthread_mutex_unlock(&lock));
    add(own_calls * 10 + (uintptr_t)which);
    return NULL;
}

static void *in_read(void *unused) {
    char c;
    arrived();
    while (must(read(channel[0], &c, 1)) == 1) own_calls += c;
    add(own_calls);
    return unused;
}

static void *in_epoll(void *unused) {
    int set = must(epoll_create1(0));
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 42}, told;
    must(epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted));
    arrived();
    for (;;) {
        // Being attached to interrupts nothing.
        expect(must(epoll_wait(set, &told, 1, -1)) == 1 && told.data.u64 == 42);
        uint64_t n;
        must(read(event, &n, sizeof n));
        own_calls += n;
        if (n >= 100) break;
    }
    add(own_calls);
    return unused;
}

static void *in_naps(void *unused) {
    arrived();
    while (!over) {
        struct timespec nap = {.tv_nsec = 3000000};
        must(nanosleep(&nap, NULL));
        expect(must(poll(NULL, 0, 1)) == 0);
        own_calls++;
    }
    if (own_calls > 5) add(5);
    return unused;
}

// Keeps numbers in vector registers, and in the x87 ones.
static void *computing(void *unused) {
    double a[4] = {1, 2, 3, 4};
    long double b = 1;
    uint64_t c = 1;
    arrived();
    while (!over) {
        for (int i = 0; i < 1000; i++) {
            for (int k = 0; k < 4; k++) a[k] = a[k] * 1.0000001 + k;
            b = b * 1.0000001L + 1;
            c = mix(c);
        }
    }
    say("computed %.17g %.17g %.17g %.17g %.20Lg %lu\n", a[0], a[1], a[2], a[3], b, c);
    return unused;
}

// Stays in a handler, on a signal stack, until all is over.
static void handler(int signal) {
    char local;
    expect(signal == SIGUSR1);
    arrived();
    while (!over) own_calls++;
    stack_t now;
    must(sigaltstack(NULL, &now));
    expect(now.ss_flags == SS_ONSTACK && &local > (char *)now.ss_sp && &local < (char *)now.ss_sp + now.ss_size);
}

static void *in_handler(void *unused) {
    static char stack[64 << 10];
    stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
    must(sigaltstack(&s, NULL));
    ok(pthread_kill(pthread_self(), SIGUSR1));
    must(sigaltstack(NULL, &s));
    expect(s.ss_flags == 0 && s.ss_sp == stack);
    say("handled after %ld\n", own_calls);
    return unused;
}

// Has a signal blocked that is pending, and takes it when all is over.
static void *with_pending(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    ok(pthread_kill(pthread_self(), SIGUSR2));
    arrived();
    while (!over) usleep(1000);
    int signal = 0;
    ok(sigwait(&set, &signal));
    add(signal);
    return unused;
}

// Ends with a robust mutex that it took before.
static void *owner(void *unused) {
    ok(pthread_mutex_lock(&robust));
    arrived();
    while (!over) usleep(1000);
    return unused;
}

static void tick(int signal) {
    expect(signal == SIGALRM);
    ticks++;
}

// Goes on when the standard input has a byte more.
static void next(void) {
    char c;
    while (must(read(0, &c, 1)) == 1 && c != '.') {}
}

int main(int argc, char **argv) {
    long stages = number(argc, argv, 1, 2);
    pthread_mutexattr_t kind;
    ok(pthread_mutexattr_init(&kind));
    ok(pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutex_init(&robust, &kind));
    must(pipe(channel));
    event = must(eventfd(0, 0));
    shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    shared[0] = 17;
    char *guarded = must(mmap(NULL, 3 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    strcpy(guarded + 4096, "not to be seen now");
    must(mprotect(guarded + 4096, 4096, PROT_NONE));
    struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &a, NULL));
    a.sa_handler = handler;
    a.sa_flags = SA_ONSTACK;
    must(sigaction(SIGUSR1, &a, NULL));
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    ok(pthread_sigmask(SIG_BLOCK, &alarms, NULL));
    void *(*bodies[])(void *) = {on_condition, on_condition, in_read, in_epoll, in_naps, computing, in_handler, with_pending, owner};
    enum { N = sizeof bodies / sizeof *bodies };
    pthread_t threads[N];
    for (long i = 0; i < N; i++) threads[i] = start(bodies[i], (void *)i);
    while (at_place < N) usleep(1000);
    ok(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL));
    struct itimerval often = {.it_interval.tv_usec = 4000, .it_value.tv_usec = 4000};
    must(setitimer(ITIMER_REAL, &often, NULL));
    say("ready\n");
    for (long s = 1; s <= stages; s++) {
        next();
        struct timespec now;
        must(clock_gettime(CLOCK_REALTIME, &now));
        ok(pthread_rwlock_wrlock(&table));
        ok(pthread_mutex_lock(&lock));
        stage = s;
        ok(pthread_cond_broadcast(&changed));
        ok(pthread_mutex_unlock(&lock));
        ok(pthread_rwlock_unlock(&table));
        must(write(channel[1], "ab", 2));
        must(write(event, &(uint64_t){1}, 8));
        char *block = malloc(100000);
        memset(block, (int)s, 100000);
        char *heap = must((char *)sbrk(8192));
        memset(heap, 3, 8192);
        pid_t child = must(fork());
        if (child == 0) {
            shared[0] += 5 + block[7];
            _exit((int)(shared[0] & 127));
        }
        int status;
        while (waitpid(child, &status, 0) != child) expect(errno == EINTR);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == (int)(shared[0] & 127));
        say("stage %ld at %ld.%09ld: %lu, sum %lu\n", s, (long)now.tv_sec, now.tv_nsec, shared[0], sum);
    }
    next();
    ok(pthread_mutex_lock(&lock));
    over = 1;
    ok(pthread_cond_broadcast(&changed));
    ok(pthread_mutex_unlock(&lock));
    must(write(event, &(uint64_t){100}, 8));
    must(close(channel[1]));
    for (int i = 0; i < N; i++) finish(threads[i]);
    expect(pthread_mutex_lock(&robust) == EOWNERDEAD);
    must(mprotect(guarded + 4096, 4096, PROT_READ));
    say("%s; ticks %ld; sum %lu\n", guarded + 4096, ticks, sum);
    return 7;
}
