// Writes words into the memory that the program shares with its recorder, and goes on: with calls of two threads, and its end.
//
//   overwrites [ADDRESS VALUE]...
#include "../guest.h"
#include <unistd.h>

static void *calls(void *p) {
    for (int i = 0; i < 100; i++) {
        getppid();
        sched_yield();
    }
    return p;
}

int main(int argc, char **argv) {
    pthread_t other = start(calls, NULL);
    calls(NULL);
    for (int i = 1; i + 1 < argc; i += 2) *(volatile uint32_t *)strtoul(argv[i], NULL, 0) = strtoul(argv[i + 1], NULL, 0);
    calls(NULL);
    finish(other);
    say("over\n");
}
