// Threads look at a page again and again, until the first thread takes it away from them: all of them come to a handler then, as in the
// safepoints of garbage collectors. How often each had looked by then is told; then the page is theirs again. Beside them a thread writes to
// pages that the first thread protects from time to time; the handler notes which, and gives them back: a write barrier.
// variant: O0 -O0
// variant: O2 -O2
// run: 2 20
// run: 3 6
#include "guest.h"
#include <sys/mman.h>

#define MOST 8
#define PAGES 16
static volatile char *page, *heap;
static _Thread_local volatile sig_atomic_t me;
static sem_t arrived, go_on[MOST];
static long noted[PAGES];

static void on_fault(GUEST_UNUSED int signal, siginfo_t *info, GUEST_UNUSED void *context) {
    char *at = info->si_addr;
    if (at == page) {
        must(sem_post(&arrived));
        while (sem_wait(&go_on[me]) != 0) {
        }
        return;
    }
    size_t which = (at - heap) / 4096;
    expect(which < PAGES);
    noted[which]++;
    must(mprotect((char *)heap + which * 4096, 4096, PROT_READ | PROT_WRITE));
}

static void *looks(void *number) {
    me = (intptr_t)number;
    unsigned long rounds = 0, sum = 0;
    while (!*page) {
        rounds++;
        sum = sum * 31 + rounds;
    }
    say("%d: %lu %lu\n", (int)me, rounds, sum);
    return NULL;
}

static void *writes(void *unused) {
    me = MOST - 1;
    for (long n = 0; n < 20000000; n++) heap[n * 7 % PAGES * 4096] = n;
    return unused;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 2), rounds = number(argc, argv, 2, 20);
    expect(threads < MOST - 1);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    heap = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(page != MAP_FAILED && heap != MAP_FAILED);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL));
    must(sem_init(&arrived, 0, 0));
    pthread_t all[MOST], writer = start(writes, NULL);
    for (intptr_t i = 0; i < threads; i++) {
        must(sem_init(&go_on[i], 0, 0));
        all[i] = start(looks, (void *)i);
    }
    for (int r = 0; r < rounds; r++) {
        burn(20000 + r % 5 * 20000);
        must(mprotect((char *)heap + r % PAGES * 4096, 4096, PROT_READ));
        must(mprotect((char *)page, 4096, PROT_NONE));
        for (int i = 0; i < threads; i++) {
            while (sem_wait(&arrived) != 0) {
            }
        }
        must(mprotect((char *)page, 4096, PROT_READ | PROT_WRITE));
        if (r + 1 == rounds) *page = 1;
        for (int i = 0; i < threads; i++) must(sem_post(&go_on[i]));
    }
    for (int i = 0; i < threads; i++) finish(all[i]);
    finish(writer);
    long sum = 0;
    for (int i = 0; i < PAGES; i++) sum += noted[i];
    say("faults for writes: %ld\n", sum);
}
