// Two threads loop in code that the program wrote at run time, one of them changing it as it goes.
// run: 60
#include "guest.h"

typedef uint64_t (*loop)(uint64_t rounds, volatile uint64_t *progress);

// mov %rdi,%rcx; 1: incq (%rsi); dec %rcx; jnz 1b; mov $answer,%eax; ret
static const unsigned char text[] = {0x48, 0x89, 0xf9, 0x48, 0xff, 0x06, 0x48, 0xff, 0xc9, 0x75, 0xf8, 0xb8, 0, 0, 0, 0, 0xc3};
static volatile uint64_t progress[2][8];
static long passes;

static void *body(void *p) {
    uintptr_t me = (uintptr_t)p;
    unsigned char *code = (unsigned char *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    uint64_t seen = 0;
    for (long i = 0; i < passes; i++) {
        unsigned char *at = code + (me ? 0 : i % 200 * sizeof text);
        memcpy(at, text, sizeof text);
        at[12] = (unsigned char)(i % 128);
        expect(((loop)at)(1000000, progress[me]) == (uint64_t)i % 128);
        seen = mix(seen + progress[1 - me][0]);
    }
    return (void *)seen;
}

int main(int argc, char **argv) {
    passes = number(argc, argv, 1, 60);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    expect(progress[0][0] == (uint64_t)passes * 1000000);
    say("saw %lu and %lu\n", x, y);
}
