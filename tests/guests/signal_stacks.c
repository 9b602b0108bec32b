// The other stack for handlers: when one is on it, when it may be changed, SS_AUTODISARM, nested handlers, one for each thread.
#include "guest.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

enum { SIZE = 65536 };

static __thread char *memory;
static volatile sig_atomic_t depth, deepest;
static stack_t inside;
static int change_error;

static bool on_it(const volatile char *p) { return p >= memory && p < memory + SIZE; }

static void looks(int number) {
    char here;
    depth++;
    if (depth > deepest) deepest = depth;
    must(sigaltstack(NULL, &inside));
    expect(on_it(&here));
    stack_t other = {.ss_sp = memory, .ss_size = SIZE};
    errno = 0;
    change_error = sigaltstack(&other, NULL) == 0 ? 0 : errno;
    // A second handler continues below the first, on the same stack.
    if (number == SIGUSR1 && depth < 3) raise(depth == 1 ? SIGUSR2 : SIGUSR1);
    if (number == SIGUSR2) raise(SIGRTMIN);
    depth--;
}

static void not_there(int number) {
    char here;
    (void)number;
    expect(!on_it(&here));
}

static void disarmed(int number) {
    (void)number;
    char here;
    expect(on_it(&here));
    must(sigaltstack(NULL, &inside));
    // As though there were none: it can be set anew, and a nested handler runs wherever that says.
    expect(inside.ss_flags == SS_DISABLE);
    stack_t other = {.ss_sp = malloc(SIZE), .ss_size = SIZE};
    must(sigaltstack(&other, NULL));
    must(sigaltstack(NULL, &inside));
    expect(inside.ss_sp == other.ss_sp);
}

static void *body(void *unused) {
    stack_t stack;
    must(sigaltstack(NULL, &stack));
    expect(stack.ss_flags == SS_DISABLE);
    memory = malloc(SIZE);
    must(sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = SIZE}, NULL));
    for (int i = 0; i < 20; i++) ok(pthread_kill(pthread_self(), SIGRTMIN));
    must(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    return unused;
}

int main(void) {
    memory = malloc(SIZE);
    stack_t stack = {.ss_sp = memory, .ss_size = SIZE}, old;
    must(sigaltstack(&stack, &old));
    expect(old.ss_flags == SS_DISABLE);
    struct sigaction action = {.sa_handler = looks, .sa_flags = SA_ONSTACK | SA_NODEFER};
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGUSR2, &action, NULL));
    must(sigaction(SIGRTMIN, &action, NULL));
    must(raise(SIGUSR1));
    expect(inside.ss_flags == SS_ONSTACK && inside.ss_sp == memory && inside.ss_size == SIZE && change_error == EPERM);
    must(sigaltstack(NULL, &old));
    expect(old.ss_flags == 0 && old.ss_sp == memory);
    say("%d handlers deep\n", (int)deepest);
    // Handlers without the flag stay where they are.
    action.sa_handler = not_there;
    action.sa_flags = 0;
    must(sigaction(SIGUSR1, &action, NULL));
    must(raise(SIGUSR1));
    // Errors.
    fails(ENOMEM, sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = 100}, NULL));
    fails(EINVAL, sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = SIZE, .ss_flags = 77}, NULL));
    fails(EFAULT, sigaltstack((void *)8, NULL));
    must(sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = SIZE, .ss_flags = SS_ONSTACK}, NULL));
    // Disarmed while a handler runs, there again afterwards.
    must(sigaltstack(&(stack_t){.ss_sp = memory, .ss_size = SIZE, .ss_flags = (int)SS_AUTODISARM}, NULL));
    action.sa_handler = disarmed;
    action.sa_flags = SA_ONSTACK;
    must(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 3; i++) must(raise(SIGUSR1));
    must(sigaltstack(NULL, &old));
    expect(old.ss_sp == memory && (unsigned)old.ss_flags == SS_AUTODISARM);
    must(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    action.sa_handler = not_there;
    must(sigaction(SIGUSR1, &action, NULL));
    must(raise(SIGUSR1));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(body, NULL);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    say("done\n");
}
