// A handler without SA_RESTART ends a read from an empty pipe with EINTR; with it the read goes on until the handler's own bytes come.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
static int tube[2];
static volatile sig_atomic_t count;

static void only_counts(int number) { (void)number; count++; }
static void writes(int number) {
    (void)number;
    count++;
    if (write(tube[1], "from the handler", 16) != 16) count = 1000;
}

int main(void) {
    must(pipe(tube));
    char text[32];
    struct sigaction action = {.sa_handler = only_counts};
    must(sigaction(SIGALRM, &action, NULL));
    for (int i = 0; i < 5; i++) {
        alarm_every(2000);
        fails(EINTR, read(tube[0], text, sizeof text));
        alarm_every(0);
    }
    expect(count >= 5);
    count = 0;
    action.sa_handler = writes;
    action.sa_flags = SA_RESTART;
    must(sigaction(SIGALRM, &action, NULL));
    for (int i = 0; i < 5; i++) {
        // Once: what the handler writes is there to be read, also if it ran before.
        must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 2000}, NULL));
        tell(read(tube[0], text, sizeof text));
    }
    expect(count == 5);
}
