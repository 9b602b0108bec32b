// A TCP server thread and four client threads on the loopback device, with a port that the kernel chooses.
// variant: static -static
// run: 20
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct sockaddr_in address = {.sin_family = AF_INET};
static long rounds;

static void *client(void *p) {
    int fd = must(socket(AF_INET, SOCK_STREAM, 0));
    int one = 1;
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    must(connect(fd, (struct sockaddr *)&address, sizeof address));
    struct sockaddr_in mine, peer;
    socklen_t length = sizeof mine;
    must(getsockname(fd, (struct sockaddr *)&mine, &length));
    must(getpeername(fd, (struct sockaddr *)&peer, &length));
    expect(peer.sin_port == address.sin_port);
    for (long i = 0; i < rounds; i++) {
        uint64_t question = mix((uintptr_t)p * 1000 + i), answer = 0;
        expect(send(fd, &question, 8, 0) == 8);
        expect(recv(fd, &answer, 8, MSG_WAITALL) == 8);
        expect(answer == mix(question));
    }
    must(shutdown(fd, SHUT_RDWR));
    must(close(fd));
    return (void *)(uintptr_t)ntohs(mine.sin_port);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 20);
    signal(SIGPIPE, SIG_IGN);
    int listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int one = 1;
    must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(listener, (struct sockaddr *)&address, sizeof address));
    must(listen(listener, 16));
    socklen_t length = sizeof address;
    must(getsockname(listener, (struct sockaddr *)&address, &length));
    int buffer = 0;
    length = sizeof buffer;
    must(getsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, &length));
    say("port %d, buffer %d\n", ntohs(address.sin_port), buffer);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(client, (void *)i);
    struct pollfd fds[5] = {{listener, POLLIN, 0}};
    int open = 0, accepted = 0, nfds = 1;
    uint64_t order = 0;
    while (accepted < 4 || open > 0) {
        must(poll(fds, nfds, -1));
        if (fds[0].revents) {
            struct sockaddr_in from;
            length = sizeof from;
            int fd = must(accept(listener, (struct sockaddr *)&from, &length));
            expect(length == sizeof from);
            order = mix(order + ntohs(from.sin_port));
            fds[nfds++] = (struct pollfd){fd, POLLIN, 0};
            open++, accepted++;
        }
        for (int i = 1; i < nfds; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            uint64_t question, answer;
            expect(recv(fds[i].fd, &question, 8, MSG_PEEK) >= 0 || errno == ECONNRESET);
            ssize_t n = recv(fds[i].fd, &question, 8, 0);
            order = mix(order + i * 100 + n);
            if (n <= 0) {
                must(close(fds[i].fd));
                fds[i].fd = -1;
                open--;
                continue;
            }
            answer = mix(question);
            struct iovec halves[2] = {{&answer, 4}, {(char *)&answer + 4, 4}};
            struct msghdr message = {.msg_iov = halves, .msg_iovlen = 2};
            expect(n == 8 && sendmsg(fds[i].fd, &message, MSG_NOSIGNAL) == 8);
        }
    }
    for (int i = 0; i < 4; i++) say("client port %lu\n", (unsigned long)finish(threads[i]));
    say("order %lu\n", order);
    int refused = must(socket(AF_INET, SOCK_STREAM, 0));
    must(close(listener));
    fails(ECONNREFUSED, connect(refused, (struct sockaddr *)&address, sizeof address));
}
