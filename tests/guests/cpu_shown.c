// What the program is shown of the processor, by cpuid and by the compiler's and libc's view of it; and string functions that follow it.
#include "guest.h"
#include <cpuid.h>

int main(void) {
    unsigned a, b, c, d;
    expect(__get_cpuid(1, &a, &b, &c, &d));
    bool avx = c >> 28 & 1, osxsave = c >> 27 & 1;
    say("popcnt %d sse4.2 %d\n", c >> 23 & 1, c >> 20 & 1);
    say("avx %d osxsave %d\n", avx, osxsave);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) b = 0;
    say("avx2 %d avx512f %d\n", b >> 5 & 1, b >> 16 & 1);
    __builtin_cpu_init();
    expect(!__builtin_cpu_supports("avx2") == !(b >> 5 & 1));
    static char from[100000], to[100000];
    for (size_t i = 0; i < sizeof from; i++) from[i] = i * 7 + 1;
    uint64_t sum = 0;
    for (size_t i = 1; i < sizeof from; i = i * 3 + 1) {
        memcpy(to + 5, from, i);
        sum = mix(sum ^ hash_bytes(to, i) ^ strnlen(to + 5, i) ^ (uintptr_t)memchr(from, 255, i) % 4096);
    }
    say("sum %lx\n", sum);
}
