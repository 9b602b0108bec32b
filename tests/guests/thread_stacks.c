// Stacks of threads: sizes, guards, own memory; what a thread finds of its own; an overflow that a handler on another stack sees, in many
// threads at once.
#include "guest.h"

static __thread sigjmp_buf away;
static __thread char *fault;
static _Atomic int overflows;

static void on_overflow(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    fault = info->si_addr;
    siglongjmp(away, 1);
}

__attribute__((noinline)) static int deeper(volatile char *above) {
    volatile char frame[512];
    frame[0] = above ? above[0] : 1;
    return frame[0] ? deeper(frame) + frame[1] : 0;
}

static void *overflows_its_stack(void *unused) {
    char *memory = malloc(SIGSTKSZ);
    stack_t stack = {.ss_sp = memory, .ss_size = SIGSTKSZ};
    must(sigaltstack(&stack, NULL));
    pthread_attr_t own;
    void *low;
    size_t size, guard;
    ok(pthread_getattr_np(pthread_self(), &own));
    ok(pthread_attr_getstack(&own, &low, &size));
    ok(pthread_attr_getguardsize(&own, &guard));
    ok(pthread_attr_destroy(&own));
    for (volatile int i = 0; i < 3; i++) {
        fault = NULL;
        if (sigsetjmp(away, 1) == 0) deeper(NULL);
        // In the guard, right below the stack.
        expect(fault >= (char *)low - guard && fault < (char *)low + guard);
        overflows++;
    }
    must(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    free(memory);
    return unused;
}

static void *finds_itself(void *wanted) {
    pthread_attr_t own;
    void *low;
    size_t size;
    int detached;
    ok(pthread_getattr_np(pthread_self(), &own));
    ok(pthread_attr_getstack(&own, &low, &size));
    ok(pthread_attr_getdetachstate(&own, &detached));
    ok(pthread_attr_destroy(&own));
    volatile char here = 1;
    expect((char *)&here > (char *)low && (char *)&here < (char *)low + size && detached == PTHREAD_CREATE_JOINABLE);
    if (wanted) expect(low == wanted);
    // All of it can be used, but for the part above us and a little below.
    char *deep = alloca(size - 32768);
    memset(deep, 1, size - 32768);
    return (void *)size;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    must(sigaction(SIGSEGV, &action, NULL));
    pthread_attr_t a;
    ok(pthread_attr_init(&a));
    pthread_t thread, threads[6];
    static const size_t sizes[] = {65536, 131072, 1000 * 4096, 64 << 20};
    for (int i = 0; i < 4; i++) {
        ok(pthread_attr_setstacksize(&a, sizes[i]));
        ok(pthread_create(&thread, &a, finds_itself, NULL));
        size_t size = (size_t)finish(thread);
        expect(size <= sizes[i] && size >= sizes[i] - 65536);
        say("a stack of %zu bytes\n", sizes[i]);
    }
    // Memory of our own: no guard, and it is still there afterwards.
    char *memory = must(mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    pthread_attr_t b;
    ok(pthread_attr_init(&b));
    ok(pthread_attr_setstack(&b, memory, 1 << 18));
    for (int i = 0; i < 3; i++) {
        ok(pthread_create(&thread, &b, finds_itself, memory));
        expect((size_t)finish(thread) == 1 << 18);
    }
    // What makes no sense.
    expect(pthread_attr_setstacksize(&a, 100) == EINVAL);
    expect(pthread_attr_setstack(&b, memory, 100) == EINVAL);
    expect(pthread_attr_setdetachstate(&a, 77) == EINVAL);
    expect(pthread_attr_setscope(&a, 77) == EINVAL && pthread_attr_setscope(&a, PTHREAD_SCOPE_PROCESS) == ENOTSUP);
    expect(pthread_attr_setschedpolicy(&a, 77) == EINVAL);
    expect(pthread_attr_setinheritsched(&a, 77) == EINVAL);
    // More than there is room for.
    ok(pthread_attr_setstacksize(&a, 1ul << 46));
    expect(pthread_create(&thread, &a, finds_itself, NULL) == EAGAIN);

    ok(pthread_attr_setstacksize(&a, 131072));
    ok(pthread_attr_setguardsize(&a, 8 * 4096));
    for (int i = 0; i < 6; i++) ok(pthread_create(&threads[i], &a, overflows_its_stack, NULL));
    for (int i = 0; i < 6; i++) finish(threads[i]);
    say("%d overflows\n", (int)overflows);
}
