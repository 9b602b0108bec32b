// A long run, of which a flight recorder keeps the end: threads that read random bytes, share memory under a lock and without one, compute
// without a call, get signals, and say what came out. At the end it may crash.
//   kept_stretch THREADS ROUNDS [crash] [ordered] [held]    (0 rounds: for ever; ordered: nothing is shared without a lock; held: who reads random
//   bytes has the lock meanwhile, for which all others wait)
// run: 2 300
// run: 1 300
// run: 2 300 held
// run: 3 200 crash => SIGSEGV
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t table[4096], racy;
static __thread uint64_t own;
static long rounds;
static bool ordered, held;
static volatile sig_atomic_t signals;

static void on_signal(int signal) {
    (void)signal;
    __atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
}

static void *body(void *which) {
    uint64_t bytes[256], sum = (uintptr_t)which, *shared = ordered ? &own : &racy;
    for (long i = 0; rounds == 0 || i < rounds; i++) {
        if (held) ok(pthread_mutex_lock(&lock));
        must(syscall(SYS_getrandom, bytes, sizeof bytes, 0));
        if (held) ok(pthread_mutex_unlock(&lock));
        for (unsigned k = 0; k < 256; k++) sum = mix(sum + bytes[k]);
        uint64_t *fresh = malloc(8 + sum % 10000);
        expect(fresh != NULL);
        *fresh = sum;
        ok(pthread_mutex_lock(&lock));
        table[sum % 4096] += *fresh;
        ok(pthread_mutex_unlock(&lock));
        *shared += sum;
        if (i % 64 == 0) {
            for (unsigned k = 0; k < 100000; k++) *shared = mix(*shared + k);
            ok(pthread_kill(pthread_self(), SIGUSR1));
        }
        if (i % 4 == 0) say("thread %d round %ld: %llu %llu\n", (int)(uintptr_t)which, i, (unsigned long long)sum, (unsigned long long)*shared);
        free(fresh);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 1);
    rounds = number(argc, argv, 2, 1000);
    bool crashes = false;
    for (int i = 3; i < argc; i++) {
        crashes |= strcmp(argv[i], "crash") == 0;
        ordered |= strcmp(argv[i], "ordered") == 0;
        held |= strcmp(argv[i], "held") == 0;
    }
    struct sigaction action = {.sa_handler = on_signal};
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_t all[16];
    for (long i = 1; i < threads; i++) all[i] = start(body, (void *)i);
    body(NULL);
    for (long i = 1; i < threads; i++) finish(all[i]);
    uint64_t sum = 0;
    for (unsigned k = 0; k < 4096; k++) sum = mix(sum + table[k]);
    say("end: %llu %llu after %d signals\n", (unsigned long long)sum, (unsigned long long)racy, (int)signals);
    if (crashes) *(volatile int *)(sum & 0xff0) = 1;
}
