// A thread looks at atomic words of each size again and again, until another one changes them, while signals come, and at words whose page
// can't be read for a moment. Handlers say what they find in the registers. To be built by `reprise cc`, which makes the loads visible.
// run: 40
#include "guest.h"

#include <stdatomic.h>
#include <ucontext.h>

#define ROUNDS_MAX 255

static struct {
    unsigned char byte;
    unsigned short half;
    unsigned int word;
    unsigned long wide;
} polled;
static long rounds;
static atomic_long handled, noise;
static unsigned long *page, seen;
static long faults;

// What a call of a function may leave behind, and what it may not.
static unsigned long found_in(const ucontext_t *uc) {
    static const int wanted[] = {REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_EFL};
    unsigned long all = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) all = all * 31 + uc->uc_mcontext.gregs[wanted[i]];
    return all;
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    noise = noise * 7 + found_in(context);
    handled++;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal;
    expect(info->si_addr == page);
    noise = noise * 7 + found_in(context);
    faults++;
    expect(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

#define UNTIL(field) \
    while (__atomic_load_n(&polled.field, __ATOMIC_ACQUIRE) != (typeof(polled.field))i) looks++;

static void *poller(void *p) {
    (void)p;
    unsigned long looks = 0;
    for (long i = 1; i <= rounds; i++) {
        UNTIL(byte)
        UNTIL(half)
        UNTIL(word)
        UNTIL(wide)
        // Known by now; it can't be read.
        unsigned long was = __atomic_load_n(page, __ATOMIC_RELAXED);
        expect(mprotect(page, 4096, PROT_NONE) == 0);
        expect(__atomic_load_n(page, __ATOMIC_RELAXED) == was);
        __atomic_store_n(page, was + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&seen, i, __ATOMIC_RELEASE);
    }
    return (void *)looks;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 40);
    expect(rounds <= ROUNDS_MAX);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(page != MAP_FAILED);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    expect(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_sigaction = on_fault;
    expect(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_t thread = start(poller, NULL);
    long sent = 0;
    for (long i = 1; i <= rounds; i++) {
        for (int n = 0; n < 3; n++, sent++) expect(pthread_kill(thread, SIGUSR1) == 0);
        __atomic_store_n(&polled.byte, i, __ATOMIC_RELEASE);
        __atomic_store_n(&polled.half, i, __ATOMIC_RELEASE);
        expect(pthread_kill(thread, SIGUSR1) == 0);
        sent++;
        __atomic_store_n(&polled.word, i, __ATOMIC_RELEASE);
        __atomic_store_n(&polled.wide, i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&seen, __ATOMIC_ACQUIRE) != (unsigned long)i) continue;
    }
    void *looks;
    expect(pthread_join(thread, &looks) == 0);
    expect(faults == rounds && *page == (unsigned long)rounds);
    expect(handled > 0 && handled <= sent);
    say("%lu looks, %ld signals, %ld faults, %lu\n", (unsigned long)looks, (long)handled, faults, (unsigned long)noise);
}
