// Opening a FIFO blocks until the other side comes: a call that may block although its name does not say so.
#include "guest.h"

static const char *name = "a fifo";

static void *writer(void *unused) {
    (void)unused;
    int fd = must(open(name, O_WRONLY));
    expect(write(fd, "through", 7) == 7);
    must(close(fd));
    return NULL;
}

int main(void) {
    unlink(name);
    must(mkfifo(name, 0600));
    fails(ENXIO, open(name, O_WRONLY | O_NONBLOCK));
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start(writer, NULL);
        int fd = must(open(name, O_RDONLY));
        char bytes[16];
        size_t n = 0;
        for (ssize_t r; (r = must(read(fd, bytes + n, sizeof bytes - n))) > 0;) n += r;
        expect(n == 7 && memcmp(bytes, "through", 7) == 0);
        must(close(fd));
        finish(thread);
    }
    must(unlink(name));
    say("five times, at %ld\n", now_ns(CLOCK_REALTIME));
}
