// Two threads in floating point of every kind (SSE, AVX where there is, x87, libm), with rounding modes of their own.
// libraries: -lm
// run: 400000
#include "guest.h"
#include <fenv.h>
#include <math.h>

static volatile uint64_t progress[2][8];
static uint64_t rounds;

__attribute__((target("avx"), noinline)) static double wide(double x) {
    double in[4] = {x, x + 1, x + 2, x + 3}, out[4];
    __asm__ volatile(
        "vmovupd (%0), %%ymm9\n vmulpd %%ymm9, %%ymm9, %%ymm10\n vaddpd %%ymm10, %%ymm9, %%ymm9\n vsqrtpd %%ymm9, %%ymm9\n vmovupd %%ymm9, (%1)\n vzeroupper\n"
        :
        : "r"(in), "r"(out)
        : "memory", "xmm9", "xmm10");
    return out[0] + out[1] + out[2] + out[3];
}

static void *body(void *p) {
    uintptr_t me = (uintptr_t)p;
    fesetround(me ? FE_UPWARD : FE_DOWNWARD);
    __builtin_cpu_init();
    bool avx = __builtin_cpu_supports("avx");
    double x = 0.5 + me;
    long double y = 1 + (long double)me;
    uint64_t seen = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        x = sin(x) * 1.5 + cos(x) + i % 3;
        y = sqrtl(y * 1.1L + 2) + fmodl(y, 0.7L);
        if (avx) x += wide(x) * 0x1p-20;
        if (!(x > -1e6 && x < 1e6)) x = 1;
        progress[me][0] = i;
        seen = mix(seen + progress[1 - me][0]);
    }
    expect(fegetround() == (me ? FE_UPWARD : FE_DOWNWARD));
    uint64_t bits;
    memcpy(&bits, &x, 8);
    long double product = y * 1000000;
    return (void *)(mix(bits) + mix((uint64_t)product) + seen);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 400000);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("results %lu and %lu\n", x, y);
}
