// What poll, ppoll, select and pselect say of pipes, sockets and files in all states, and when nothing comes.
// flags: -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>

static void look(const char *what, int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
    int n = must(poll(&p, 1, 0));
    say("%s: %d, %x\n", what, n, p.revents);
}

int main(void) {
    int tube[2], pair[2];
    must(pipe2(tube, O_NONBLOCK));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    look("reader, empty", tube[0]);
    look("writer, empty", tube[1]);
    static char bytes[1 << 20];
    must(write(tube[1], bytes, sizeof bytes));
    look("reader, full", tube[0]);
    look("writer, full", tube[1]);
    must(close(tube[0]));
    look("writer alone", tube[1]);
    must(pipe(tube));
    must(close(tube[1]));
    look("reader alone", tube[0]);
    look("socket", pair[0]);
    must(write(pair[1], "x", 1));
    look("socket with a byte", pair[0]);
    must(shutdown(pair[1], SHUT_WR));
    look("socket, half closed", pair[0]);
    must(close(pair[1]));
    look("socket alone", pair[0]);
    look("file", must(open("file", O_CREAT | O_RDWR, 0600)));
    look("directory", must(open(".", O_RDONLY)));
    look("null", must(open("/dev/null", O_RDWR)));
    look("not open", 999);
    look("negative", -1);
    tell(poll(NULL, 0, 2));
    struct pollfd p = {tube[0], 0, 0};
    tell(poll(&p, 1, -1));
    tell(ppoll(NULL, 0, &(struct timespec){0, 1000000}, NULL));
    tell(ppoll(NULL, 0, &(struct timespec){0, -1}, NULL));
    tell(poll((struct pollfd *)8, 1, 0));
    tell(poll(&p, 1u << 30, 0));
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(tube[0], &r);
    FD_SET(pair[0], &r);
    FD_SET(1, &w);
    struct timeval none = {0, 0};
    tell(select(pair[0] + 1, &r, &w, NULL, &none));
    say("%d %d %d\n", !!FD_ISSET(tube[0], &r), !!FD_ISSET(pair[0], &r), !!FD_ISSET(1, &w));
    struct timeval some = {0, 2000};
    tell(select(0, NULL, NULL, NULL, &some));
    say("left %ld %ld\n", some.tv_sec, some.tv_usec);
    FD_ZERO(&r);
    FD_SET(900, &r);
    tell(select(901, &r, NULL, NULL, &none));
    tell(select(-1, NULL, NULL, NULL, &none));
    tell(select(1, (fd_set *)8, NULL, NULL, &none));
    tell(pselect(0, NULL, NULL, NULL, &(struct timespec){0, 1000000}, NULL));
    tell(select(0, NULL, NULL, NULL, &(struct timeval){-1, 0}));
}
