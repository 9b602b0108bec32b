// A test that fails once in a while: with status 1 in one run of N (N = 1: always, N = 0: never).
// run: 0
#include "guest.h"
#include <sys/random.h>

int main(int argc, char **argv) {
    long one_in = number(argc, argv, 1, 4);
    uint64_t draw;
    expect(getrandom(&draw, sizeof draw, 0) == sizeof draw);
    int failed = one_in > 0 && draw % one_in == 0;
    say("drew %lu, failed %d\n", draw, failed);
    return failed;
}
