// The arguments and the environment arrive as they were given, whatever their size.
// run: one "two words" three
#include "guest.h"

extern char **environ;

int main(int argc, char **argv) {
    size_t variables = 0, bytes = 0;
    uint64_t hash = 0;
    for (char **e = environ; *e; e++) {
        variables++;
        bytes += strlen(*e) + 1;
        hash = mix(hash + hash_bytes(*e, strlen(*e)));
    }
    for (int i = 0; i < argc; i++) say("argument %d has %zu bytes, hash %lu\n", i, strlen(argv[i]), hash_bytes(argv[i], strlen(argv[i])));
    say("%zu variables, %zu bytes, hash %lu\n", variables, bytes, hash);
    expect(setenv("REPRISE_GUEST", "set", 1) == 0);
    expect(strcmp(getenv("REPRISE_GUEST"), "set") == 0);
}
