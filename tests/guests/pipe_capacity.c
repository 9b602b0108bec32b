// How much a pipe holds: setting it, what doesn't fit, packets instead of a stream.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ioctl.h>

int main(void) {
    int tube[2];
    must(pipe2(tube, O_NONBLOCK));
    static char bytes[1 << 17];
    int capacity = must(fcntl(tube[0], F_GETPIPE_SZ));
    say("at first %d\n", capacity);
    expect(write(tube[1], bytes, sizeof bytes) == capacity);
    fails(EAGAIN, write(tube[1], "x", 1));
    // Not below what is in it.
    fails(EBUSY, fcntl(tube[1], F_SETPIPE_SZ, 4096));
    int larger = fcntl(tube[1], F_SETPIPE_SZ, capacity + 1);
    expect(larger == 2 * capacity || errno == EPERM);
    if (larger > 0) expect(write(tube[1], bytes, sizeof bytes) == larger - capacity);
    while (read(tube[0], bytes, sizeof bytes) > 0) continue;
    expect(errno == EAGAIN);
    expect(fcntl(tube[1], F_SETPIPE_SZ, 1) == 4096 && fcntl(tube[0], F_GETPIPE_SZ) == 4096);
    fails(EINVAL, fcntl(tube[1], F_SETPIPE_SZ, -1));
    int r = fcntl(tube[1], F_SETPIPE_SZ, 1 << 30);
    expect(r > 0 || errno == EPERM || errno == ENOMEM);
    fails(EBADF, fcntl(1 << 20, F_GETPIPE_SZ));
    fails(EBADF, fcntl(must(open(".", O_RDONLY)), F_GETPIPE_SZ));
    must(fcntl(tube[1], F_SETPIPE_SZ, 4096));
    // Up to PIPE_BUF bytes all or nothing.
    expect(write(tube[1], bytes, 4000) == 4000);
    fails(EAGAIN, write(tube[1], bytes, 200));
    // A part of the last page may be used, or not.
    ssize_t n = write(tube[1], bytes, 5000);
    expect((n > 0 && n <= 96) || errno == EAGAIN);
    say("of 5000: %zd\n", n);
    must(pipe2(tube, O_DIRECT | O_NONBLOCK));
    expect(write(tube[1], "one", 3) == 3 && write(tube[1], "second", 6) == 6 && write(tube[1], bytes, 5000) == 5000);
    int waiting;
    must(ioctl(tube[0], FIONREAD, &waiting));
    expect(waiting == 5009);
    expect(read(tube[0], bytes, 100) == 3 && read(tube[0], bytes, 2) == 2 && memcmp(bytes, "se", 2) == 0);
    // What was too long for the buffer is lost, and what was too long for a packet came as two.
    expect(read(tube[0], bytes, sizeof bytes) == 4096 && read(tube[0], bytes, sizeof bytes) == 904);
}
