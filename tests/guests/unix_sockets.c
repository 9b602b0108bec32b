// Unix sockets by path and by abstract name: stream, datagram and packets that keep their ends.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "a socket"};
static socklen_t address_length;
static int type;

static void *client(void *p) {
    int fd = must(socket(AF_UNIX, type, 0));
    must(connect(fd, (struct sockaddr *)&address, address_length));
    char text[64];
    snprintf(text, sizeof text, "client %ld", (long)(intptr_t)p);
    expect(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
    ssize_t n = must(recv(fd, text, sizeof text, 0));
    expect(n == 6 && memcmp(text, "served", 6) == 0);
    expect(recv(fd, text, sizeof text, 0) == 0);
    must(close(fd));
    return NULL;
}

static void serve(int listener, int clients) {
    pthread_t threads[8];
    must(listen(listener, 8));
    for (intptr_t i = 0; i < clients; i++) threads[i] = start(client, (void *)i);
    uint64_t order = 0;
    for (int i = 0; i < clients; i++) {
        int fd = must(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        char text[64] = "";
        ssize_t n = must(read(fd, text, sizeof text));
        expect(n == 8);
        order = order * 10 + text[7] - '0' + 1;
        expect(write(fd, "served", 6) == 6);
        must(shutdown(fd, SHUT_WR));
        must(close(fd));
    }
    for (int i = 0; i < clients; i++) finish(threads[i]);
    say("served in order %lu\n", order);
}

int main(void) {
    unlink(address.sun_path);
    for (int round = 0; round < 2; round++) {
        type = round ? SOCK_SEQPACKET : SOCK_STREAM;
        int listener = must(socket(AF_UNIX, type, 0));
        if (round) {
            snprintf(address.sun_path, sizeof address.sun_path, "%cguest %d %ld", 0, getpid(), now_ns(CLOCK_REALTIME));
            address_length = sizeof address;
        } else {
            address_length = sizeof(sa_family_t) + strlen(address.sun_path) + 1;
        }
        must(bind(listener, (struct sockaddr *)&address, address_length));
        struct sockaddr_un name;
        socklen_t length = sizeof name;
        must(getsockname(listener, (struct sockaddr *)&name, &length));
        expect(length == address_length && memcmp(name.sun_path, address.sun_path, 8) == 0);
        serve(listener, 6);
        must(close(listener));
        if (!round) must(unlink("a socket"));
    }
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    char text[64];
    fails(EAGAIN, recv(pair[0], text, sizeof text, 0));
    int sent = 0;
    while (send(pair[1], text, 64, 0) == 64) sent++;
    expect(errno == EAGAIN);
    expect(recv(pair[0], text, 10, MSG_TRUNC) == 64);
    expect(recv(pair[0], text, 10, MSG_PEEK) == 10);
    say("%d datagrams fit\n", sent);
}
