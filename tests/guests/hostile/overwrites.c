// Writes words into the memory that the program shares with its recorder, and goes on: with calls of two threads, and its end.
//
//   overwrites [ADDRESS VALUE]...
#include "../guest.h"
#include <unistd.h>

static volatile int written;

// The other thread goes on at least until the words are written: it waits for its turn then.
static void *calls(void *p) {
    for (int i = 0; i < 100 || (p && !written); i++) {
        getppid();
        sched_yield();
    }
    return p;
}

int main(int argc, char **argv) {
    pthread_t other = start(calls, (void *)&written);
    calls(NULL);
    for (int i = 1; i + 1 < argc; i += 2) *(volatile uint32_t *)strtoul(argv[i], NULL, 0) = strtoul(argv[i + 1], NULL, 0);
    written = 1;
    calls(NULL);
    finish(other);
    say("over\n");
}
