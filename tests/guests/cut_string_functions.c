// Two threads inside libc's string functions: cuts fall into vector code that isn't the program's own.
// run: 4000
#include "guest.h"

static volatile uint64_t progress[2][8];
static uint64_t rounds;

static void *body(void *p) {
    uintptr_t me = (uintptr_t)p;
    size_t length = 30000;
    char *a = (char *)malloc(length + 1), *b = (char *)malloc(length + 1);
    memset(a, 'x', length);
    a[length] = 0;
    uint64_t seen = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        memcpy(b, a, length + 1);
        a[i % length] = 'a' + i % 20;
        size_t n = strlen(b);
        n += memchr(a, 'y', length) == NULL;
        n += strcmp(a, b) != 0;
        memmove(b + 1, b, length - 1);
        n += strchr(b, '!') == NULL;
        memset(b, (char)i, length);
        progress[me][0] = i;
        seen = mix(seen + n + progress[1 - me][0]);
    }
    free(a);
    free(b);
    return (void *)seen;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 4000);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("saw %lu and %lu\n", x, y);
}
