// Processes that do nothing but change words that they share are killed one after the other; the last of them goes on.
// run: 6
#include "guest.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 6);
    uint64_t *words = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t all[16];
    int ends[2];
    must(pipe(ends));
    for (long i = 0; i < processes; i++) {
        all[i] = must(fork());
        if (all[i] != 0) continue;
        for (long n = 1;; n++) {
            for (int k = 0; k < 8; k++) __atomic_fetch_add(&words[k], 1, __ATOMIC_SEQ_CST);
            if (n % 4096 == 0) must(write(ends[1], "", 1));
        }
    }
    for (long i = 0; i < processes; i++) {
        char c;
        // All that are left go on.
        for (int k = 0; k < 5; k++) expect(must(read(ends[0], &c, 1)) == 1);
        must(kill(all[i], SIGKILL));
        int status;
        expect(must(waitpid(all[i], &status, 0)) == all[i] && WIFSIGNALED(status));
    }
    for (int k = 0; k < 8; k++) expect(__atomic_fetch_add(&words[k], 1, __ATOMIC_SEQ_CST) > 0);
    say("%ld were killed\n", processes);
}
