// splice and sendfile between files, pipes and sockets: without waiting, in parts, with another thread at the other end.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/socket.h>

static int pair[2], tube[2];
enum { LENGTH = 300000 };
static char sent[LENGTH], received[LENGTH];

static void *reader(void *unused) {
    (void)unused;
    for (size_t n = 0; n < LENGTH;) n += must(recv(pair[1], received + n, LENGTH - n, 0));
    return NULL;
}

static void *mover(void *unused) {
    (void)unused;
    long all = 0;
    for (ssize_t n; (n = must(splice(tube[0], NULL, pair[0], NULL, 1 << 20, SPLICE_F_MOVE | SPLICE_F_MORE))) > 0;) all += n;
    return (void *)all;
}

int main(void) {
    for (size_t i = 0; i < LENGTH; i++) sent[i] = (char)mix(i);
    int file = must(open("file", O_CREAT | O_RDWR, 0600));
    expect(write(file, sent, LENGTH) == LENGTH);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(pipe(tube));
    pthread_t a = start(reader, NULL);
    off_t at = 0;
    while (at < LENGTH) expect(must(sendfile(pair[0], file, &at, LENGTH)) > 0);
    finish(a);
    expect(memcmp(sent, received, LENGTH) == 0);
    memset(received, 0, LENGTH);
    a = start(reader, NULL);
    pthread_t b = start(mover, NULL);
    loff_t from = 0;
    while (from < LENGTH) expect(must(splice(file, &from, tube[1], NULL, LENGTH - from, 0)) > 0);
    must(close(tube[1]));
    expect((long)finish(b) == LENGTH);
    finish(a);
    expect(memcmp(sent, received, LENGTH) == 0);
    // Nothing there, no room: only if it needn't wait.
    must(pipe(tube));
    fails(EAGAIN, splice(pair[1], NULL, tube[1], NULL, 10, SPLICE_F_NONBLOCK));
    fails(EAGAIN, splice(tube[0], NULL, pair[0], NULL, 10, SPLICE_F_NONBLOCK));
    expect(send(pair[0], "from a socket", 13, 0) == 13);
    expect(splice(pair[1], NULL, tube[1], NULL, 100, SPLICE_F_NONBLOCK) == 13);
    char text[32];
    expect(read(tube[0], text, 32) == 13 && memcmp(text, "from a socket", 13) == 0);
    fails(EINVAL, splice(tube[0], NULL, pair[0], NULL, 6, 1 << 10));
    fails(EINVAL, splice(pair[1], &from, tube[1], NULL, 6, 0));
    fails(EINVAL, splice(pair[1], NULL, pair[0], NULL, 6, 0));
    expect(splice(tube[0], NULL, pair[0], NULL, 0, 0) == 0);
    must(close(tube[1]));
    expect(splice(tube[0], NULL, pair[0], NULL, 6, 0) == 0);
    say("hash %lu\n", hash_bytes(received, LENGTH));
}
