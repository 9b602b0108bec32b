// Instructions that answer differently on every run or machine: rdtsc, rdtscp, cpuid, xgetbv, and what cpuid says may be used.
// variant: static -static
// variant: O0 -O0
#include "guest.h"
#include <cpuid.h>
#include <x86intrin.h>

__attribute__((target("rdrnd"))) static unsigned long random_number(void) {
    unsigned long long value = 0;
    _rdrand64_step(&value);
    return value;
}

__attribute__((target("rdseed"))) static unsigned long random_seed(void) {
    unsigned long long value = 0;
    _rdseed64_step(&value);
    return value;
}

int main(void) {
    unsigned aux;
    uint64_t last = 0;
    for (int i = 0; i < 5; i++) {
        uint64_t t = __rdtsc();
        expect(t >= last);
        last = t;
        say("rdtsc %lu\n", t);
    }
    for (int i = 0; i < 3; i++) {
        uint64_t t = __rdtscp(&aux);
        say("rdtscp %lu on %u\n", t, aux);
    }
    uint64_t hash = 0;
    for (int i = 0; i < 20000; i++) hash = mix(hash + __rdtsc());
    say("twenty thousand times, hash %lu\n", hash);
    unsigned a, b, c, d;
    unsigned highest = __get_cpuid_max(0, NULL);
    for (unsigned leaf = 0; leaf <= 7; leaf++) {
        a = b = c = d = 0;
        if (leaf <= highest) __cpuid_count(leaf, 0, a, b, c, d);
        // Leaf 1 names the processor that was asked: any of them may answer.
        say("cpuid %u: 0x%x 0x%x 0x%x 0x%x\n", leaf, a, b, c, d);
    }
    __cpuid(0x80000000, a, b, c, d);
    for (unsigned leaf = 0x80000000; leaf <= 0x80000004; leaf++) {
        unsigned w = 0, x = 0, y = 0, z = 0;
        if (leaf <= a) __cpuid(leaf, w, x, y, z);
        say("cpuid 0x%x: 0x%x 0x%x 0x%x 0x%x\n", leaf, w, x, y, z);
    }
    __cpuid(1, a, b, c, d);
    unsigned long xcr0 = 0, number = 0, seed = 0;
    if (c & bit_OSXSAVE) {
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        xcr0 = low | (unsigned long)high << 32;
    }
    // Randomness from the processor: only when cpuid offers it, as every well-behaved program does.
    if (c & bit_RDRND) number = random_number();
    if (highest >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        if (b & bit_RDSEED) seed = random_seed();
    }
    say("xcr0 0x%lx, rdrand 0x%lx, rdseed 0x%lx\n", xcr0, number, seed);
}
