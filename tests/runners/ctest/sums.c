// Ends well when it is told the sum of 1 and 2, waits for ever when told 0.
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int sum = atoi(argv[argc - 1]);
    if (!sum) pause();
    assert(1 + 2 == sum);
    return 0;
}
