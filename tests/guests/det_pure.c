// All that a program learns of time, chance, ids and addresses: under `reprise run --pure` it is the same in every run. With an argument it sleeps for more than
// an hour.
#include "guest.h"
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/wait.h>

#define THREADS 3

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int64_t told;
// What it sleeps is so many of these, in ns.
static int64_t unit = 100000;
static struct { int64_t first, last, slept, after; uint64_t random; pid_t tid; uintptr_t stack, heap; } seen[THREADS];

static int64_t now(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static struct timespec in_time(int64_t ns) {
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static void *thread(void *argument) {
    int n = (int)(intptr_t)argument;
    seen[n].first = now(CLOCK_MONOTONIC);
    // As long as others do something else, and without a meeting.
    for (int i = 0; i < 1000 * n; i++) now(CLOCK_REALTIME);
    ok(pthread_mutex_lock(&mutex));
    expect(now(CLOCK_MONOTONIC) >= told);
    told = now(CLOCK_MONOTONIC);
    ok(pthread_mutex_unlock(&mutex));
    expect(getrandom(&seen[n].random, sizeof seen[n].random, 0) == sizeof seen[n].random);
    seen[n].tid = gettid();
    seen[n].stack = (uintptr_t)&n;
    seen[n].heap = (uintptr_t)malloc(100 + n);
    pthread_barrier_wait(&barrier);
    int64_t before = now(CLOCK_MONOTONIC);
    struct timespec longer = in_time((1000 + n) * unit);
    must(nanosleep(&longer, NULL));
    seen[n].slept = now(CLOCK_MONOTONIC) - before;
    expect(seen[n].slept >= (1000 + n) * unit);
    struct timespec end = in_time(now(CLOCK_REALTIME) + 500 * unit);
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    ok(pthread_mutex_lock(&own));
    expect(pthread_cond_timedwait(&never, &own, &end) == ETIMEDOUT);
    ok(pthread_mutex_unlock(&own));
    seen[n].after = now(CLOCK_MONOTONIC);
    expect(now(CLOCK_REALTIME) >= end.tv_sec * 1000000000ll + end.tv_nsec);
    seen[n].last = seen[n].after;
    return NULL;
}

static void shows(const char *when) {
    uint64_t words[4] = {0};
    struct timeval day;
    struct rusage usage;
    struct sysinfo info;
    struct tms used;
    unsigned cpu = 77, node = 77;
    say("%s\n", when);
    for (clockid_t clock = 0; clock < 8; clock++) say("clock %d: %ld\n", clock, now(clock));
    must(gettimeofday(&day, NULL));
    say("day %ld.%06ld, seconds %ld\n", day.tv_sec, day.tv_usec, time(NULL));
    say("counter %llu, ", (unsigned long long)__builtin_ia32_rdtsc());
    say("and %llu\n", (unsigned long long)__builtin_ia32_rdtscp(&cpu));
    say("by processor %u\n", cpu);
    must(getcpu(&cpu, &node));
    say("by processor %u of node %u, %d\n", cpu, node, sched_getcpu());
    must(getrusage(RUSAGE_SELF, &usage));
    must(sysinfo(&info));
    long ticks = times(&used);
    say("used %ld.%06ld, ticks %ld %ld, up %ld\n", usage.ru_utime.tv_sec, usage.ru_utime.tv_usec, ticks, (long)used.tms_utime, info.uptime);
    expect(getrandom(words, sizeof words, 0) == sizeof words);
    say("random %lu %lu\n", words[0], words[3]);
    int fd = must(open("/dev/urandom", O_RDONLY));
    expect(read(fd, words, sizeof words) == sizeof words && words[0] != words[1]);
    close(fd);
    say("device %lu %lu\n", words[0], words[3]);
    memcpy(words, (void *)getauxval(AT_RANDOM), 16);
    say("at start %lu %lu\n", words[0], words[1]);
    say("ids %d %d, parent %d\n", getpid(), gettid(), getppid());
    void *block = malloc(100), *large = malloc(1 << 20);
    say("addresses %p %p %p %p\n", block, large, (void *)&fd, (void *)shows);
    free(block);
    free(large);
}

static void child(void) {
    // The child may sleep before its parent has the processor again.
    int64_t before = now(CLOCK_MONOTONIC);
    pid_t pid = must(fork());
    if (pid == 0) {
        say("child %d of %d at %ld\n", getpid(), getppid(), now(CLOCK_MONOTONIC));
        uint64_t word;
        expect(getrandom(&word, sizeof word, 0) == sizeof word);
        say("child's random %lu\n", word);
        struct timespec some = in_time(300 * unit);
        must(nanosleep(&some, NULL));
        _exit(7);
    }
    int status;
    expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    // It has slept, and who waited for it learns of that.
    expect(now(CLOCK_MONOTONIC) - before >= 300 * unit);
    expect(waitpid(pid, &status, 0) == -1 && errno == ECHILD);
    say("child %d was waited for at %ld\n", pid, now(CLOCK_MONOTONIC));
}

static volatile sig_atomic_t came;
static pid_t sender;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    came++;
    sender = info->si_pid;
}

static void ids(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    came = 0;
    must(sigaction(SIGUSR1, &action, NULL));
    must(kill(getpid(), SIGUSR1));
    expect(came == 1 && sender == getpid());
    must(tgkill(getpid(), gettid(), SIGUSR1));
    expect(came == 2 && sender == getpid());
    expect(kill(99999, 0) == -1 && errno == ESRCH);
    expect(getpgid(getpid()) == getpgrp() && getsid(getpid()) == getsid(0));
    char path[64], self[64] = {0}, from[64];
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    int fd = must(open(path, O_RDONLY));
    close(fd);
    expect(readlink("/proc/self", self, sizeof self - 1) > 0);
    snprintf(from, sizeof from, "%d", getpid());
    expect(strcmp(self, from) == 0);
    say("group %d, session %d\n", getpgrp(), getsid(0));
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) unit = 1000000000;
    shows("at first");
    int64_t before = now(CLOCK_MONOTONIC);
    must(usleep(900000));
    expect(now(CLOCK_MONOTONIC) - before >= 900000000ll);
    struct timespec end = in_time(now(CLOCK_MONOTONIC) + 3600 * unit);
    ok(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL));
    expect(now(CLOCK_MONOTONIC) >= end.tv_sec * 1000000000ll + end.tv_nsec);
    ids();
    child();
    ok(pthread_barrier_init(&barrier, NULL, THREADS));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) ok(pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i));
    for (int i = 0; i < THREADS; i++) ok(pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) {
        say("thread %d: id %d from %ld to %ld, slept %ld\n", i, seen[i].tid, seen[i].first, seen[i].last, seen[i].slept);
        say("thread %d: random %lu, stack 0x%lx, heap 0x%lx\n", i, seen[i].random, seen[i].stack, seen[i].heap);
        expect(now(CLOCK_MONOTONIC) >= seen[i].last);
    }
    ids();
    child();
    shows("at last");
}
