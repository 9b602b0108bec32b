// Ended by a signal that nothing handles, in the middle of a computation after the last gate: by its own alarm, or from outside.
//   killed WAY THREADS [MILLISECONDS]     WAY: alarm; outside: it says its process id and computes until somebody ends it;
//                                         asleep: the same, while the first thread waits
// Whoever ends it from outside waits for the file `ready` first: a signal that comes while a call is under way leaves open
// whether the call happened.
// Half of the threads compute without a gate, the others pass gates all the time.
// run: alarm 1 50 => SIGALRM
// run: alarm 2 50 => SIGALRM
// run: alarm 4 50 => SIGALRM
#include "guest.h"

static volatile uint64_t found[16];

__attribute__((noreturn)) static void compute(uint64_t id) {
    for (uint64_t x = id;; x = mix(x + 1)) found[id] += x;
}

__attribute__((noreturn)) static void *work(void *argument) {
    uint64_t id = (uint64_t)argument;
    if (id % 2 == 0) compute(id);
    for (;;) {
        found[id] += getppid();
        for (int i = 0; i < 1000; i++) found[id] = mix(found[id]);
    }
}

int main(int argc, char **argv) {
    expect(argc >= 3);
    long threads = number(argc, argv, 2, 1);
    for (long i = 1; i < threads; i++) start(work, (void *)i);
    if (strcmp(argv[1], "alarm") == 0) {
        long ms = number(argc, argv, 3, 50);
        say("waiting for the alarm\n");
        must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = ms * 1000}, NULL));
    } else {
        say("%d\n", getpid());
        must(creat("ready", 0600));
    }
    if (strcmp(argv[1], "asleep") == 0) pause();
    compute(0);
}
