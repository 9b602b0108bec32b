// Memory that a handler provides when it is touched: from reserved pages, by two threads at once, on an alternative stack.
// run: 200
#include "guest.h"

enum { PAGE = 4096 };
static char *area;
static long pages;
static _Atomic long faults;

static void provide(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *at = (char *)((unsigned long)info->si_addr & ~(PAGE - 1ul));
    if (at < area || at >= area + pages * PAGE || info->si_code != SEGV_ACCERR) _exit(GUEST_FAILED);
    // Another thread may have been here first: providing twice is harmless.
    if (mprotect(at, PAGE, PROT_READ | PROT_WRITE) != 0) _exit(GUEST_FAILED);
    faults++;
}

static void *worker(void *argument) {
    static _Thread_local char stack[32768];
    must(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL));
    long step = (long)argument;
    for (long i = 0; i < pages; i++) {
        long page = step > 0 ? i : pages - 1 - i;
        uint64_t *word = (uint64_t *)(area + page * PAGE) + (step > 0 ? 0 : 1);
        *word += (uint64_t)page + 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pages = number(argc, argv, 1, 200);
    area = (char *)must(mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    struct sigaction action = {.sa_sigaction = provide, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    must(sigaction(SIGSEGV, &action, NULL));
    pthread_t a = start(worker, (void *)1), b = start(worker, (void *)-1);
    finish(a);
    finish(b);
    uint64_t sum = 0;
    for (long i = 0; i < pages; i++) {
        uint64_t *words = (uint64_t *)(area + i * PAGE);
        expect(words[0] == (uint64_t)i + 1 && words[1] == (uint64_t)i + 1);
        sum += words[0];
    }
    expect(faults >= pages && faults <= 2 * pages);
    // Everything away again, and once more.
    must(mprotect(area, pages * PAGE, PROT_NONE));
    long first = faults;
    for (long i = 0; i < pages; i += 7) ((volatile char *)area)[i * PAGE + 100] = 1;
    expect(faults - first == (pages + 6) / 7);
    say("%ld faults, sum %lu\n", (long)faults, sum);
}
