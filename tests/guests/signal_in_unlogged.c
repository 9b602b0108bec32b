// Signals that come in calls of malloc, of a recursive mutex and the like, all made in one place: only how often tells which call it was.
// run: 40
#include "guest.h"

static volatile sig_atomic_t ticks;
static volatile uint64_t order;
static volatile uint64_t round;
static pthread_mutex_t again;
static pthread_mutex_t strict;

static void handler(int number) {
    (void)number;
    ticks++;
    // Where the handler's frame is shows how deep the program was.
    order = mix(order + round + ((uintptr_t)__builtin_frame_address(0) & 0xffff));
}

__attribute__((noinline)) static void *take(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) static void give(void *block) {
    free(block);
    __asm__ volatile("");
}

// Blocks are taken at many depths of the stack.
__attribute__((noinline)) static uint64_t deep(int depth) {
    char *block = take(24 + depth);
    block[0] = (char)depth;
    uint64_t sum = depth ? deep(depth - 1) : 0;
    __asm__ volatile("" : "+r"(block) : : "memory");
    sum += block[0];
    give(block);
    return sum;
}

static void types(void) {
    pthread_mutexattr_t a;
    ok(pthread_mutexattr_init(&a));
    ok(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE));
    ok(pthread_mutex_init(&again, &a));
    ok(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK));
    ok(pthread_mutex_init(&strict, &a));
}

int main(int argc, char **argv) {
    long wanted = number(argc, argv, 1, 40);
    types();
    ok(pthread_mutex_lock(&again));
    ok(pthread_mutex_lock(&strict));
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL));
    must(setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 700}, {.tv_usec = 700}}, NULL));
    uint64_t sum = 0;
    while (ticks < wanted) {
        round++;
        sum += deep(10);
        for (int i = 0; i < 30; i++) {
            ok(pthread_mutex_lock(&again));
            expect(pthread_mutex_lock(&strict) == EDEADLK);
        }
        for (int i = 0; i < 30; i++) ok(pthread_mutex_unlock(&again));
    }
    must(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    say("%d ticks, order %lu, %lu rounds, %lu\n", ticks, order, round, sum);
}
