// The first process ends with 7, and leaves a child, which reads its input to the end, says so, and ends, too.
// run: => 7
#include "guest.h"

int main(void) {
    if (must(fork()) == 0) {
        char bytes[64];
        while (must(read(0, bytes, sizeof bytes)) > 0) continue;
        say("the child has read its input\n");
        return 0;
    }
    say("the first process is done\n");
    return 7;
}
