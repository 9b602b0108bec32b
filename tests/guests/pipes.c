// Pipes between threads: blocking, full, empty, non-blocking, broken.
// run: 200000
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <poll.h>

static int ends[2];
static long total;

static void *producer(void *unused) {
    (void)unused;
    char block[5000];
    for (long sent = 0; sent < total;) {
        size_t n = 1 + mix(sent) % sizeof block;
        if ((long)n > total - sent) n = total - sent;
        for (size_t i = 0; i < n; i++) block[i] = (char)mix((sent + i) / 8);
        ssize_t w = must(write(ends[1], block, n));
        expect((size_t)w == n);
        sent += w;
    }
    must(close(ends[1]));
    return NULL;
}

int main(int argc, char **argv) {
    total = number(argc, argv, 1, 200000);
    must(pipe(ends));
    must(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    pthread_t thread = start(producer, NULL);
    char block[3000];
    long got = 0, reads = 0;
    uint64_t sizes = 0;
    for (;;) {
        ssize_t n = must(read(ends[0], block, sizeof block));
        if (n == 0) break;
        for (ssize_t i = 0; i < n; i++) expect(block[i] == (char)mix((got + i) / 8));
        got += n;
        reads++;
        sizes = mix(sizes + n);
    }
    finish(thread);
    expect(got == total);
    say("%ld bytes in %ld reads, sizes %lu\n", got, reads, sizes);

    must(pipe2(ends, O_NONBLOCK));
    fails(EAGAIN, read(ends[0], block, 1));
    long fits = 0;
    for (ssize_t n; (n = write(ends[1], block, 1000)) > 0;) fits += n;
    expect(errno == EAGAIN);
    must(close(ends[0]));
    signal(SIGPIPE, SIG_IGN);
    fails(EPIPE, write(ends[1], block, 1));
    struct pollfd p = {ends[1], POLLOUT, 0};
    expect(poll(&p, 1, 0) == 1 && (p.revents & POLLERR));
    say("%ld bytes fit\n", fits);
}
