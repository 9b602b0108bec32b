// What tests/debug/dap.rs asks for more of than fits: a line that is passed 110,000 times, and an array of as many elements. The tests know these names, and the
// comments that begin with "here".
// flags: -O0
// run:
#include "guest.h"

#define MANY 110000

static int many[MANY];
static int counter;

static void count(int what) {
    many[what] = what;
    counter = what + 1; // here it counts
}

int main(void) {
    for (int i = 0; i < MANY; i++) {
        int what = i;
        count(what);
    }
    say("%d are counted\n", counter); // here it is full
    return 0;
}
