// TCP on the loopback: refused, half closed, reset, urgent data, addresses in use, waiting senders and receivers with timeouts.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static struct sockaddr_in here;

static void pair(int server, int *a, int *b) {
    *a = must(socket(AF_INET, SOCK_STREAM, 0));
    must(connect(*a, (struct sockaddr *)&here, sizeof here));
    *b = must(accept(server, NULL, NULL));
}

int main(void) {
    here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int server = must(socket(AF_INET, SOCK_STREAM, 0)), a, b;
    must(bind(server, (struct sockaddr *)&here, sizeof here));
    socklen_t n = sizeof here;
    must(getsockname(server, (struct sockaddr *)&here, &n));
    a = must(socket(AF_INET, SOCK_STREAM, 0));
    tell(connect(a, (struct sockaddr *)&here, sizeof here));
    must(close(a));
    must(listen(server, 5));
    tell(bind(server, (struct sockaddr *)&here, sizeof here));
    int again = must(socket(AF_INET, SOCK_STREAM, 0));
    tell(bind(again, (struct sockaddr *)&here, sizeof here));
    char text[64];
    tell(send(again, "x", 1, MSG_NOSIGNAL));
    tell(recv(again, text, 1, 0));
    tell(shutdown(again, SHUT_RDWR));
    pair(server, &a, &b);
    tell(send(a, "hello", 5, 0));
    tell(recv(b, text, 3, MSG_PEEK));
    tell(recv(b, text, 64, 0));
    tell(recv(b, text, 64, MSG_DONTWAIT));
    struct timeval soon = {0, 2000};
    must(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    tell(recv(b, text, 64, 0));
    must(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 0}, sizeof soon));
    tell(send(a, "abc", 3, 0));
    tell(send(a, "!", 1, MSG_OOB));
    tell(send(a, "def", 3, 0));
    tell(recv(b, text, 64, 0));
    tell(recv(b, text, 1, MSG_OOB));
    tell(recv(b, text, 64, 0));
    tell(recv(b, text, 1, MSG_OOB));
    must(shutdown(a, SHUT_WR));
    tell(recv(b, text, 64, 0));
    tell(send(b, "still", 5, 0));
    tell(recv(a, text, 5, MSG_WAITALL));
    tell(send(a, "x", 1, MSG_NOSIGNAL));
    must(close(a));
    must(close(b));
    pair(server, &a, &b);
    must(setsockopt(a, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)));
    must(close(a));
    tell(recv(b, text, 64, 0));
    tell(send(b, "x", 1, MSG_NOSIGNAL));
    int error;
    n = sizeof error;
    must(getsockopt(b, SOL_SOCKET, SO_ERROR, &error, &n));
    say("error %d\n", error);
    must(close(b));
    pair(server, &a, &b);
    static char bytes[1 << 20];
    must(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon));
    long sent = 0, r;
    while ((r = send(a, bytes, sizeof bytes, 0)) > 0) sent += r;
    expect(errno == EAGAIN && sent > 0);
    struct tcp_info info;
    n = sizeof info;
    must(getsockopt(a, IPPROTO_TCP, TCP_INFO, &info, &n));
    say("sent %ld, state %d, rtt %u\n", sent, info.tcpi_state, info.tcpi_rtt);
    must(shutdown(a, SHUT_WR));
    long received = 0;
    while ((r = recv(b, bytes, sizeof bytes, 0)) > 0) received += r;
    expect(received == sent);
}
