// getrandom in all its ways, and the devices behind it: never the same twice, in replay the same again.
// flags: -Wno-stringop-overflow
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/random.h>

int main(void) {
    static unsigned char a[100000], b[100000];
    for (size_t n = 1; n <= 65536; n *= 4) {
        expect(getrandom(a, n, 0) == (ssize_t)n);
        say("%zu bytes: %lu\n", n, hash_bytes(a, n));
    }
    tell(getrandom(a, 300, GRND_NONBLOCK));
    tell(getrandom(a, 300, GRND_RANDOM | GRND_NONBLOCK) > 0);
    tell(getrandom(a, 0, 0));
    tell(getrandom(a, 16, 64));
    tell(getrandom((void *)8, 16, 0));
    tell(getentropy(a, 256));
    tell(getentropy(a, 257));
    int fd = must(open("/dev/urandom", O_RDONLY));
    expect(read(fd, a, sizeof a) == sizeof a && read(fd, b, sizeof b) == sizeof b);
    expect(memcmp(a, b, sizeof a) != 0);
    say("from the device: %lu\n", hash_bytes(a, sizeof a));
}
