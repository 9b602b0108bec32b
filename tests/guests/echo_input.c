// Standard input, read until its end, in pieces as they come.
// variant: static -static
#include "guest.h"

int main(void) {
    char bytes[256];
    size_t total = 0, pieces = 0;
    uint64_t hash = 0;
    for (;;) {
        ssize_t n = must(read(0, bytes, sizeof bytes));
        if (n == 0) break;
        total += n;
        pieces++;
        hash = mix(hash + hash_bytes(bytes, n));
    }
    say("%zu bytes in %zu pieces, hash %lu\n", total, pieces, hash);
    char *line = NULL;
    size_t size = 0;
    expect(getline(&line, &size, stdin) == -1);
}
