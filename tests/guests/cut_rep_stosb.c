// Long string instructions: cuts fall into the middle of `rep stosb` and `rep movsb`, where no breakpoint can be. A third thread looks
// how far they have come.
// run: 6 64
#include "guest.h"

static size_t length;
static long passes;
static volatile char *buffers[2];
static volatile long pass_of[2];
static _Atomic int running;

static void *fills(void *p) {
    int me = (intptr_t)p;
    uint64_t seen = 0;
    for (long i = 1; i <= passes; i++) {
        void *to = (void *)buffers[me];
        size_t n = length;
        if (i % 2 || me == 0) {
            __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"((int)i) : "memory");
        } else {
            void *from = (char *)to + 1;
            n--;
            __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        }
        pass_of[me] = i;
        // Where the other one is just now.
        seen = mix(seen + pass_of[1 - me] * 1000);
        for (size_t at = 0; at < length; at += length / 16) seen = mix(seen + buffers[1 - me][at]);
    }
    running--;
    return (void *)seen;
}

static void *looks(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    while (running) {
        for (int b = 0; b < 2; b++) {
            // The boundary between this pass and the last one, by halving.
            size_t low = 0, high = length - 1;
            char first = buffers[b][0];
            while (low + 1 < high) {
                size_t middle = (low + high) / 2;
                if (buffers[b][middle] == first) low = middle;
                else high = middle;
            }
            seen = mix(seen + low);
        }
        usleep(2000);
    }
    return (void *)seen;
}

int main(int argc, char **argv) {
    passes = number(argc, argv, 1, 6);
    length = number(argc, argv, 2, 64) << 20;
    for (int b = 0; b < 2; b++) buffers[b] = (char *)must(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    running = 2;
    pthread_t a = start(fills, (void *)0), b = start(fills, (void *)1), c = start(looks, NULL);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b), z = (uint64_t)finish(c);
    expect(buffers[0][length - 1] == (char)passes);
    say("saw %lu, %lu, %lu\n", x, y, z);
}
