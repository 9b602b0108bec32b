// A handler starts with fresh vector and floating point registers, at a gate, in a fault and in the middle of code; afterwards the
// interrupted code has its own again.
// flags: -frounding-math
// libraries: -lm
// run: 30
#include "guest.h"
#include <fenv.h>
#include <xmmintrin.h>

static volatile sig_atomic_t count, wrong;
static volatile uint64_t rounds;
static char *page;

static void handler(int number) {
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    // Denormals and rounding are the kernel's defaults, whatever the program chose.
    if (control != 0x37f || _mm_getcsr() != 0x1f80) wrong++;
    fesetround(FE_DOWNWARD);
    double x = 1.0 / 3.0;
    __asm__ volatile("" : : "x"(x));
    count++;
    if (number == SIGSEGV) must(mprotect(page, 4096, PROT_READ | PROT_WRITE));
}

static void check(void) {
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    expect((control & 0xc00) == 0x800 && (_mm_getcsr() & 0xe040) == 0x4040);
    expect(fegetround() == FE_UPWARD);
}

int main(int argc, char **argv) {
    long times = number(argc, argv, 1, 30);
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGSEGV, &action, NULL));
    must(sigaction(SIGALRM, &action, NULL));
    page = (char *)must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(fesetround(FE_UPWARD));
    _mm_setcsr(_mm_getcsr() | 0x40);
    volatile double third = 1.0, sum = 0;
    for (long i = 0; i < times; i++) {
        must(mprotect(page, 4096, PROT_READ));
        raise(SIGUSR1);
        check();
        page[8] = 1;
        check();
        sum += third / 3;
    }
    expect(count == 2 * times);
    for (int i = 0; i < 5; i++) {
        long before = count;
        must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 2000}, NULL));
        while (count == before) {
            rounds++;
            sum += third / 3;
        }
        check();
    }
    expect(wrong == 0);
    double total = sum;
    say("%lu rounds, sum %lu\n", rounds, hash_bytes(&total, sizeof total));
}
