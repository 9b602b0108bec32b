// The clock is read in threads: by the program's own instructions, and by code that is made while other threads compute, wait for each other or
// wait in the kernel. One thread wishes that reading it faults (PR_SET_TSC).
// run: 4
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <x86intrin.h>

typedef uint64_t reads_clock(void);

static reads_clock *_Atomic made;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int ready, waiters, is_made;
static int ends[2];
static sigjmp_buf back;

static void faults(int signal) {
    siglongjmp(back, signal);
}

// Is a fault, if reading the clock is to be one.
static int reads(void) {
    int signal = sigsetjmp(back, 1);
    if (signal == 0) __rdtsc();
    return signal;
}

static uint64_t mixed(uint64_t sum) {
    unsigned processor;
    for (int i = 0; i < 20; i++) {
        sum = sum * 31 + __rdtsc();
        sum = sum * 31 + __rdtscp(&processor);
    }
    return sum;
}

static void arrives(void) {
    pthread_mutex_lock(&lock);
    ready++;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

static void *computes(void *p) {
    uint64_t sum = mixed((uintptr_t)p);
    arrives();
    volatile uint64_t work = 0;
    for (int i = 0; i < 30000000; i++) work += i;
    pthread_mutex_lock(&lock);
    while (!is_made) pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 20; i++) sum = sum * 31 + made();
    return (void *)sum;
}

static void *waits_for_bytes(void *p) {
    arrives();
    char byte;
    expect(must(read(ends[0], &byte, 1)) == 1);
    return (void *)(mixed((uintptr_t)p) + made());
}

static void *waits_for_events(void *p) {
    arrives();
    int all = must(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    must(epoll_ctl(all, EPOLL_CTL_ADD, ends[0], &event));
    expect(must(epoll_wait(all, &event, 1, -1)) == 1);
    close(all);
    return (void *)(mixed((uintptr_t)p) + made());
}

int main(int argc, char **argv) {
    long n = number(argc, argv, 1, 4);
    waiters = 2;
    must(pipe(ends));
    pthread_t all[64];
    for (intptr_t i = 0; i < n; i++) all[i] = start(computes, (void *)i);
    all[n] = start(waits_for_bytes, (void *)100);
    all[n + 1] = start(waits_for_events, (void *)101);
    pthread_mutex_lock(&lock);
    while (ready < n + waiters) pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    // Those who wait have gone to wait, mostly.
    must(nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL));

    // rdtsc; shl $32, %rdx; or %rdx, %rax; ret
    static const uint8_t code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(page != MAP_FAILED);
    memcpy(page, code, sizeof code);
    must(mprotect(page, 4096, PROT_READ | PROT_EXEC));
    pthread_mutex_lock(&lock);
    made = (reads_clock *)page;
    is_made = 1;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
    uint64_t sum = mixed(0);
    for (int i = 0; i < 20; i++) sum = sum * 31 + made();
    must((int)write(ends[1], "xy", 2));
    for (long i = 0; i < n + waiters; i++) sum = sum * 31 + (uint64_t)finish(all[i]);

    signal(SIGSEGV, faults);
    must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    expect(reads() == SIGSEGV);
    must(prctl(PR_SET_TSC, PR_TSC_ENABLE));
    expect(reads() == 0);
    say("sum %lu\n", sum);
}
