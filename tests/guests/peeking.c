// Looking at what is to be received without taking it: MSG_PEEK, from a place that moves (SO_PEEK_OFF), all of it, and at once.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <arpa/inet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int main(void) {
    int pair[2], from = 0, waiting;
    char text[32];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    expect(write(pair[0], "abcdef", 6) == 6);
    expect(recv(pair[1], text, 3, MSG_PEEK) == 3 && recv(pair[1], text, 9, MSG_PEEK) == 6 && memcmp(text, "abcdef", 6) == 0);
    must(setsockopt(pair[1], SOL_SOCKET, SO_PEEK_OFF, &from, sizeof from));
    expect(recv(pair[1], text, 2, MSG_PEEK) == 2 && memcmp(text, "ab", 2) == 0);
    expect(recv(pair[1], text, 2, MSG_PEEK) == 2 && memcmp(text, "cd", 2) == 0);
    // Taking moves it back.
    expect(recv(pair[1], text, 1, 0) == 1 && text[0] == 'a');
    expect(recv(pair[1], text, 9, MSG_PEEK) == 2 && memcmp(text, "ef", 2) == 0);
    from = -1;
    must(setsockopt(pair[1], SOL_SOCKET, SO_PEEK_OFF, &from, sizeof from));
    expect(recv(pair[1], text, 9, MSG_PEEK | MSG_DONTWAIT) == 5);
    must(ioctl(pair[1], FIONREAD, &waiting));
    expect(waiting == 5 && recv(pair[1], text, 9, 0) == 5);
    fails(EAGAIN, recv(pair[1], text, 9, MSG_PEEK | MSG_DONTWAIT));
    // All that was asked for, over several messages, unless the other side ends.
    expect(write(pair[0], "12", 2) == 2 && write(pair[0], "345", 3) == 3);
    expect(recv(pair[1], text, 5, MSG_WAITALL) == 5);
    expect(write(pair[0], "67", 2) == 2);
    must(shutdown(pair[0], SHUT_WR));
    expect(recv(pair[1], text, 5, MSG_WAITALL) == 2);
    expect(recv(pair[1], text, 5, MSG_PEEK) == 0);

    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int server = must(socket(AF_INET, SOCK_STREAM, 0)), a = must(socket(AF_INET, SOCK_STREAM, 0));
    must(bind(server, (struct sockaddr *)&here, sizeof here));
    must(listen(server, 1));
    socklen_t length = sizeof here;
    must(getsockname(server, (struct sockaddr *)&here, &length));
    must(connect(a, (struct sockaddr *)&here, sizeof here));
    int b = must(accept(server, NULL, NULL));
    expect(send(a, "tcp bytes", 9, 0) == 9);
    expect(recv(b, text, 4, MSG_WAITALL | MSG_PEEK) == 4 && memcmp(text, "tcp ", 4) == 0);
    // For TCP, MSG_TRUNC throws bytes away without showing them.
    memset(text, '#', sizeof text);
    expect(recv(b, text, 4, MSG_TRUNC) == 4 && text[0] == '#');
    expect(recv(b, text, 32, 0) == 5 && memcmp(text, "bytes", 5) == 0);
    // More follows: sent together.
    expect(send(a, "one", 3, MSG_MORE) == 3 && send(a, "two", 3, 0) == 3);
    expect(recv(b, text, 6, MSG_WAITALL) == 6 && memcmp(text, "onetwo", 6) == 0);
    fails(EFAULT, recv(b, (void *)8, 4, MSG_DONTWAIT) == -1 && errno == EAGAIN ? (errno = EFAULT, -1) : -1);
    say("port %d\n", ntohs(here.sin_port));
}
