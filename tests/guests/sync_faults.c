// Pointers to nothing, given to functions that synchronise: the program gets the fault, and goes on with all its registers.
#include "guest.h"

static sigjmp_buf back;
static void *_Atomic fault_address;
static _Atomic int faults;
static long page;

static void on_fault(int unused, siginfo_t *info, void *context) {
    (void)unused, (void)context;
    faults++;
    fault_address = info->si_addr;
    siglongjmp(back, 1);
}

// Makes the page writable, and has the function called again.
static void on_repairable(int unused, siginfo_t *info, void *context) {
    (void)unused, (void)context;
    faults++;
    must(mprotect((void *)((uintptr_t)info->si_addr & -page), page, PROT_READ | PROT_WRITE));
}

#define faulty(call)                                                                                                   \
    do {                                                                                                               \
        int before_ = faults;                                                                                          \
        if (sigsetjmp(back, 1) == 0) {                                                                                 \
            (void)(call);                                                                                              \
            expect(!"it came back");                                                                                   \
        }                                                                                                              \
        expect(faults == before_ + 1);                                                                                 \
    } while (0)

int main(void) {
    page = sysconf(_SC_PAGESIZE);
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &a, NULL));
    char *nothing = must(mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct timespec t = {0, 0};
    void *nowhere = nothing;
    faulty(pthread_mutex_lock(nowhere));
    expect((char *)fault_address >= nothing && (char *)fault_address < nothing + 64);
    faulty(pthread_mutex_trylock(nowhere));
    faulty(pthread_mutex_timedlock(nowhere, &t));
    faulty(pthread_mutex_unlock(nowhere));
    faulty(pthread_cond_signal(nowhere));
    faulty(pthread_cond_timedwait(&cond, &mutex, nowhere));
    faulty(sem_post(nowhere));
    faulty(sem_wait(nowhere));
    faulty(pthread_rwlock_rdlock(nowhere));
    faulty(pthread_rwlock_wrlock(nowhere));
    faulty(pthread_barrier_wait(nowhere));
    faulty(pthread_once(nowhere, abort));
    faulty(pthread_spin_lock(nowhere));
    // And all works still.
    ok(pthread_mutex_lock(&mutex));
    ok(pthread_mutex_unlock(&mutex));
    a.sa_sigaction = on_repairable;
    must(sigaction(SIGSEGV, &a, NULL));
    long sum = 0;
    for (int i = 0; i < 10; i++) {
        // Values in registers across the call.
        long x = burn(i), y = x * 3 + i, z = y ^ 5;
        double d = i * 0.5;
        must(mprotect(nothing, page, PROT_NONE));
        int before = faults;
        ok(pthread_mutex_lock(nowhere));
        expect(faults > before);
        sum += x + y + z + (long)(d * 2);
        expect(y == x * 3 + i && z == (y ^ 5));
        must(mprotect(nothing, page, PROT_READ));
        ok(pthread_mutex_unlock(nowhere));
    }
    say("faults %d, sum %ld\n", faults, sum);
}
