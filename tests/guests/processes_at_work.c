// Processes that compute without any call, so that slices end in the middle of their code, and race in shared memory.
// run: 3 3000000
#include "guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 3), rounds = number(argc, argv, 2, 3000000);
    volatile uint64_t *shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (long i = 0; i < processes; i++) {
        if (must(fork()) != 0) continue;
        uint64_t own = i;
        for (long n = 0; n < rounds; n++) {
            own = mix(own + n);
            if (n % 64 == 0) shared[0] = mix(shared[0] ^ own);
        }
        say("process %ld: %#lx\n", i, (unsigned long)own);
        _exit(0);
    }
    for (long i = 0; i < processes; i++) must(wait(NULL));
    say("together: %#lx\n", (unsigned long)shared[0]);
}
