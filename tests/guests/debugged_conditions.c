// Places that are passed very often, for breakpoints with conditions: functions' first instructions, an instruction that can't be made elsewhere,
// a direct call, memory that is there at some of the visits only.
// flags: -O1 -g
#include "guest.h"

enum { VISITS = 40000, GATE_EVERY = 8000 };

struct item {
    long padding;
    int value;
};

static long passed;
static volatile long sums[3];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void visit(long which, long i) {
    sums[which] += i;
}

__attribute__((noinline)) void look(struct item *p) {
    if (p != NULL) sums[0] += p->value;
}

// `at_call` is an instruction of which no copy is made: a call through a register.
__attribute__((noinline)) long ask(long argument) {
    long result;
    __asm__ volatile(
        "sub $128, %%rsp\n lea 1f(%%rip), %%rax\n"
        ".globl at_call\nat_call: call *%%rax\n jmp 2f\n"
        "1: lea 1(%%rdi), %%rax\n ret\n"
        "2: add $128, %%rsp"
        : "=&a"(result)
        : "D"(argument)
        : "memory", "cc");
    return result;
}

// `at_direct` is a direct call: what it pushes is seen by the function that it calls.
__attribute__((used)) void returns_to(unsigned char *from) {
    extern unsigned char at_direct[];
    expect(from == at_direct + 5);
    passed++;
}

__attribute__((noinline)) void direct(long i) {
    __asm__ volatile(
        "sub $128, %%rsp\n push %%rbp\n mov %%rsp, %%rbp\n and $-16, %%rsp\n"
        ".globl at_direct\nat_direct: call 1f\n jmp 2f\n"
        "1: mov (%%rsp), %%rdi\n sub $8, %%rsp\n call returns_to\n add $8, %%rsp\n ret\n"
        "2: mov %%rbp, %%rsp\n pop %%rbp\n add $128, %%rsp"
        : "+a"(i)
        :
        : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void *body(void *arg) {
    long which = (long)arg;
    for (long i = 0; i < VISITS; i++) {
        visit(which, i);
        if (i % GATE_EVERY != 0) continue;
        must(pthread_mutex_lock(&lock));
        direct(i);
        must(pthread_mutex_unlock(&lock));
        sched_yield();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) must(pthread_create(&threads[i], NULL, body, (void *)(i + 1)));
    for (int i = 0; i < 2; i++) must(pthread_join(threads[i], NULL));
    expect(passed == 2 * VISITS / GATE_EVERY);
    struct item item = {0, 7};
    for (int i = 0; i < 100; i++) look(&item);
    look(NULL);
    for (long i = 0; i < 200; i++) expect(ask(i) == i + 1);
    say("sums %ld %ld %ld\n", sums[0], sums[1], sums[2]);
    return 0;
}
