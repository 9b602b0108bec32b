// Pipes give what they have and take what they can: short reads and writes, end of file, EAGAIN, EPIPE.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/ioctl.h>
int main(void) {
    int tube[2];
    must(pipe2(tube, O_NONBLOCK));
    char text[64] = "";
    tell(read(tube[0], text, 4));
    tell(write(tube[1], "0123456789", 10));
    tell(read(tube[0], text, 4));
    tell(read(tube[0], text, 4));
    tell(read(tube[0], text, 4));
    tell(read(tube[0], text, 0));
    static char bytes[1 << 17];
    tell(fcntl(tube[1], F_SETPIPE_SZ, 4096));
    tell(write(tube[1], bytes, 10000));
    tell(write(tube[1], bytes, 1));
    tell(write(tube[1], bytes, 0));
    int there;
    tell(ioctl(tube[0], FIONREAD, &there));
    say("%d there\n", there);
    tell(read(tube[0], bytes, sizeof bytes));
    tell(write(tube[0], "x", 1));
    tell(read(tube[1], text, 1));
    tell(lseek(tube[0], 0, SEEK_SET));
    tell(pread(tube[0], text, 1, 0));
    must(close(tube[1]));
    tell(read(tube[0], text, 1));
    must(pipe(tube));
    signal(SIGPIPE, SIG_IGN);
    must(close(tube[0]));
    tell(write(tube[1], "x", 1));
    tell(write(tube[1], "x", 0));
}
