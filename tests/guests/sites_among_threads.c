// System calls from many places, each of which several threads reach at the same time for the first time, in the three shapes that compilers
// give them. Signals come meanwhile.
// run: 4 6
#include "guest.h"

#define SITES 48

// Each of these makes one gettid(2), and returns its result, or -1 for an error: the number right before the call as compilers write it, as
// Go writes it, and with the look at the result behind the call.
asm(".text\n"
    ".macro functions name\n"
    ".balign 64\n"
    "\\name:\n"
    ".endm\n"
    "functions short_ones\n"
    ".rept 48\n"
    ".balign 64\n"
    "mov $186, %eax\n"
    "syscall\n"
    "ret\n"
    ".endr\n"
    "functions long_ones\n"
    ".rept 48\n"
    ".balign 64\n"
    "movq $186, %rax\n"
    "syscall\n"
    "ret\n"
    ".endr\n"
    "functions looking_ones\n"
    ".rept 48\n"
    ".balign 64\n"
    "mov $186, %eax\n"
    "nop\n"
    "syscall\n"
    "cmp $-4095, %rax\n"
    "jae 1f\n"
    "ret\n"
    "1: mov $-1, %rax\n"
    "ret\n"
    ".endr\n");
extern const char short_ones[], long_ones[], looking_ones[];

static pthread_barrier_t together;
static _Atomic long handled;
static int rounds;

static void handler(int signal) {
    expect(signal == SIGUSR1);
    expect(syscall(SYS_gettid) > 0);
    handled++;
}

static long call(const char *functions, int i) {
    long result;
    asm volatile("call *%1" : "=a"(result) : "r"(functions + 64 * i) : "rcx", "r11", "memory");
    return result;
}

static void *body(void *p) {
    (void)p;
    const long me = gettid();
    const char *shapes[] = {short_ones, long_ones, looking_ones};
    for (int i = 0; i < SITES; i++) {
        int all = pthread_barrier_wait(&together);
        expect(all == 0 || all == PTHREAD_BARRIER_SERIAL_THREAD);
        for (int k = 0; k < rounds; k++)
            for (int shape = 0; shape < 3; shape++) expect(call(shapes[shape], i) == me);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atoi(argv[2]) : 6;
    ok(pthread_barrier_init(&together, NULL, threads));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_t ids[64];
    expect(threads <= 64);
    for (int i = 0; i < threads; i++) ids[i] = start(body, NULL);
    for (int i = 0; i < 10 * threads; i++) ok(pthread_kill(ids[i % threads], SIGUSR1));
    for (int i = 0; i < threads; i++) finish(ids[i]);
    say("%d sites of three shapes, %d threads\n", SITES, threads);
}
