// A write to a full pipe is interrupted: with nothing written EINTR, with something written the number of bytes.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
static void handler(int number) { (void)number; }

int main(void) {
    int tube[2];
    must(pipe(tube));
    int size = must(fcntl(tube[1], F_SETPIPE_SZ, 8192));
    static char bytes[32768];
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGALRM, &action, NULL));
    alarm_every(3000);
    expect(write(tube[1], bytes, sizeof bytes) == size);
    fails(EINTR, write(tube[1], bytes, 1));
    expect(read(tube[0], bytes, 4096) == 4096);
    expect(write(tube[1], bytes, 6000) == 4096);
    alarm_every(0);
    tell(must(fcntl(tube[1], F_GETPIPE_SZ)));
}
