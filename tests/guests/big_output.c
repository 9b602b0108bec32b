// Much output: megabytes through stdio and in single large writes, on both standard streams.
// run: 4
#include "guest.h"

int main(int argc, char **argv) {
    long megabytes = number(argc, argv, 1, 4);
    int64_t salt = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < megabytes * 16384; i++) printf("line %09ld: %020lu %019lx\n", i, mix(i + salt), mix(i));
    fflush(stdout);
    size_t length = megabytes << 20;
    char *block = (char *)malloc(length);
    for (size_t i = 0; i < length; i++) block[i] = i % 64 == 63 ? '\n' : '0' + mix(i / 64 + salt) % 10;
    for (size_t done = 0; done < length;) done += must(write(1, block + done, length - done));
    fprintf(stderr, "%ld MB\n", megabytes);
}
