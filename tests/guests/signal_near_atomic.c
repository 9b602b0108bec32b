// A timer's signals come while threads compute in a loop without a call, directly before an instruction that changes memory in one step: where a
// signal came is known by the code there, too, which is not the same in a replay.
// run: 15
#include "guest.h"

// Handlers run in both threads at once: what they share has an order.
static _Atomic long signals;
static _Thread_local volatile uint64_t own, seen;
static long word, rounds;

static void on_alarm(int signal) {
    (void)signal;
    signals++;
    seen = mix(seen + own);
}

static void *body(void *which) {
    uint64_t sum = (uintptr_t)which;
    for (long i = 0; i < rounds; i++) {
        long n = 4000000;
        __asm__ volatile("1: add $3, %0\n\tdec %1\n\tjnz 1b\n\tlock addq $1, %2" : "+r"(sum), "+r"(n), "+m"(word));
        own = sum;
    }
    return (void *)(sum + seen);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 15);
    struct sigaction action = {.sa_handler = on_alarm};
    must(sigaction(SIGALRM, &action, NULL));
    pthread_t other = start(body, (void *)1000);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    must(setitimer(ITIMER_REAL, &every, NULL));
    uint64_t mine = (uint64_t)body((void *)2000);
    ok(pthread_sigmask(SIG_BLOCK, &alarm, NULL));
    uint64_t others = (uint64_t)finish(other);
    expect(word == 2 * rounds);
    say("%lu %lu %ld\n", mine, others, word);
    // How many there were, and where, is nobody's business but the recording's.
    expect(signals > 0);
    say("signals %ld\n", (long)signals);
}
