// Shared by all C and C++ guests: printing, checking and a little work to do.
//
// A guest is one small program for one behaviour. It *expects* what the kernel and libc promise (and exits with 99 when a
// promise is broken), and it *says* what may differ from run to run: times, ids, addresses, who won a race. A recording may
// say anything a native run may say; its replay must say the same again.
//
// What a guest says keeps its shape: the same lines in every run, apart from numbers and the order of the lines.
//
// Comments at the top of a source are read by scripts/build-guests.sh and by the tests:
//   // flags: FLAGS                compiler flags beside the usual ones
//   // variant: NAME FLAGS         build it once more as SOURCE-NAME
//   // run: ARGS [=> OUTCOME]      how the tests run it; OUTCOME is an exit status or a signal (SIGSEGV), 0 when left out
//   // heavy                       record and replay it only once in the ordinary tests
#ifndef GUEST_H
#define GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define GUEST_UNUSED __attribute__((unused))

// Exit status of a guest whose expectations were broken.
#define GUEST_FAILED 99

// Writes one formatted piece of text to standard output with a single call, so that threads and handlers may use it.
GUEST_UNUSED __attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > (int)sizeof text - 1) length = sizeof text - 1;
    for (int done = 0; done < length;) {
        ssize_t n = write(1, text + done, length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(GUEST_FAILED);
        done += n;
    }
}

GUEST_UNUSED __attribute__((noreturn)) static void guest_fail(const char *file, int line, const char *what) {
    int error = errno;
    say("FAILED %s:%d: %s (errno %d)\n", file, line, what, error);
    _exit(GUEST_FAILED);
}

// The condition must hold.
#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) guest_fail(__FILE__, __LINE__, #condition);                                                  \
    } while (0)

// The call must not return -1 (or MAP_FAILED); its value is the call's.
#define must(call)                                                                                                     \
    ({                                                                                                                 \
        __typeof__(call) result_ = (call);                                                                             \
        if (result_ == (__typeof__(call))-1) guest_fail(__FILE__, __LINE__, #call);                                    \
        result_;                                                                                                       \
    })

// The call returns an error number, which must be 0 (pthread functions).
#define ok(call)                                                                                                       \
    do {                                                                                                               \
        int error_ = (call);                                                                                           \
        if (error_ != 0) {                                                                                             \
            errno = error_;                                                                                            \
            guest_fail(__FILE__, __LINE__, #call);                                                                     \
        }                                                                                                              \
    } while (0)

// The call must fail with this errno.
#define fails(wanted, call)                                                                                            \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if ((long)(call) != -1 || errno != (wanted)) guest_fail(__FILE__, __LINE__, #call " fails with " #wanted);     \
    } while (0)

#ifdef GUEST_COMPANION
// A thread that waits all the time: with it, the guest's calls are made as those of a program with several threads.
__attribute__((noreturn)) static void *companion_(void *unused) {
    (void)unused;
    for (;;) pause();
}

__attribute__((constructor)) static void bring_companion_(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    ok(pthread_sigmask(SIG_SETMASK, &all, &before));
    ok(pthread_create(&thread, NULL, companion_, NULL));
    ok(pthread_sigmask(SIG_SETMASK, &before, NULL));
}
#endif

#ifdef GUEST_NEIGHBOUR
#include <sys/prctl.h>

// Another process that waits all the time: with it, the guest's calls are made as those of one process of several, whose memory is its own.
__attribute__((constructor)) static void bring_neighbour_(void) {
    pid_t parent = getpid();
    if (must(fork()) != 0) return;
    must(prctl(PR_SET_PDEATHSIG, SIGKILL));
    while (getppid() == parent) pause();
    _exit(0);
}
#endif

// Says what a call returns, and by name why it failed.
#define tell(call)                                                                                                     \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        if (result_ == -1) {                                                                                           \
            say("%s: %s\n", #call, strerrorname_np(errno));                                                            \
        } else {                                                                                                       \
            say("%s = %ld\n", #call, result_);                                                                         \
        }                                                                                                              \
    } while (0)

// Argument i of the command line as a number, or a default.
GUEST_UNUSED static long number(int argc, char **argv, int i, long otherwise) {
    return i < argc ? strtol(argv[i], NULL, 0) : otherwise;
}

// A thread that runs `body(argument)`.
GUEST_UNUSED static pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    ok(pthread_create(&thread, NULL, body, argument));
    return thread;
}

GUEST_UNUSED static void *finish(pthread_t thread) {
    void *result = NULL;
    ok(pthread_join(thread, &result));
    return result;
}

// A number that threads and handlers count up, and that others look at while they wait: a semaphore's value, all zero at first. Unlike a plain
// atomic variable, every look at it can be seen by an engine that orders what threads do in libc's functions.
typedef sem_t tally;

GUEST_UNUSED static void count_up(tally *c) {
    must(sem_post(c));
}

GUEST_UNUSED static int counted(tally *c) {
    int n;
    must(sem_getvalue(c, &n));
    return n;
}

GUEST_UNUSED static void count_from_zero(tally *c) {
    must(sem_init(c, 0, 0));
}

// A good mix of the bits of x (one step of a 64-bit finaliser).
GUEST_UNUSED static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

// Arithmetic that the compiler cannot remove, without a system call.
GUEST_UNUSED static uint64_t burn(uint64_t rounds) {
    uint64_t x = rounds;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

GUEST_UNUSED static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

GUEST_UNUSED static long gettid_raw(void) {
    return syscall(SYS_gettid);
}

// SIGALRM comes again and again, so many microseconds apart; 0: no more. What is to end or interrupt a wait is sent more than once: a single
// signal may be handled before the wait begins, on a busy machine, and then nothing ends it.
GUEST_UNUSED static void alarm_every(int microseconds) {
    struct itimerval each;
    each.it_value.tv_sec = each.it_interval.tv_sec = 0;
    each.it_value.tv_usec = each.it_interval.tv_usec = microseconds;
    must(setitimer(ITIMER_REAL, &each, NULL));
}

// A hash of bytes (FNV-1a), to say much in a few digits.
GUEST_UNUSED static uint64_t hash_bytes(const void *bytes, size_t length) {
    const unsigned char *p = (const unsigned char *)bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
