// Datagrams and packets between two sockets: sizes, truncation, peeking, several at once, senders' credentials, full queues.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    char text[64];
    tell(send(pair[0], "0123456789", 10, 0));
    tell(send(pair[0], "", 0, 0));
    tell(recv(pair[1], text, 4, MSG_PEEK | MSG_TRUNC));
    tell(recv(pair[1], text, 4, MSG_PEEK));
    tell(recv(pair[1], text, 4, MSG_TRUNC));
    tell(recv(pair[1], text, 4, 0));
    tell(recv(pair[1], text, 4, 0));
    int on = 1;
    must(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    struct mmsghdr out[3], in[4];
    struct iovec vo[3], vi[4];
    char got[4][8];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    for (int i = 0; i < 3; i++) {
        vo[i] = (struct iovec){(void *)("many packets" + i), 5};
        out[i].msg_hdr.msg_iov = &vo[i];
        out[i].msg_hdr.msg_iovlen = 1;
    }
    char control[4][64];
    for (int i = 0; i < 4; i++) {
        vi[i] = (struct iovec){got[i], i == 1 ? 2 : 8};
        in[i].msg_hdr.msg_iov = &vi[i];
        in[i].msg_hdr.msg_iovlen = 1;
        in[i].msg_hdr.msg_control = control[i];
        in[i].msg_hdr.msg_controllen = sizeof control[i];
    }
    tell(sendmmsg(pair[0], out, 3, 0));
    tell(recvmmsg(pair[1], in, 4, 0, NULL));
    for (int i = 0; i < 3; i++) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&in[i].msg_hdr);
        expect(c && c->cmsg_type == SCM_CREDENTIALS && ((struct ucred *)CMSG_DATA(c))->pid == getpid());
        say("%u sent, %u bytes %.2s flags %x control %zu\n", out[i].msg_len, in[i].msg_len, got[i], in[i].msg_hdr.msg_flags,
            in[i].msg_hdr.msg_controllen);
    }
    tell(recvmmsg(pair[1], in, 4, 0, NULL));
    int sent = 0;
    while (send(pair[0], text, 60, 0) == 60) sent++;
    expect(errno == EAGAIN && sent > 0);
    static char big[1 << 20];
    tell(send(pair[0], big, sizeof big, 0));
    must(close(pair[1]));
    tell(send(pair[0], "x", 1, 0));
    tell(recv(pair[0], text, 1, 0));
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    tell(send(pair[0], "packet", 6, 0));
    tell(send(pair[0], "two", 3, MSG_EOR));
    tell(recv(pair[1], text, 3, 0));
    tell(recv(pair[1], text, 64, 0));
    must(shutdown(pair[0], SHUT_WR));
    tell(recv(pair[1], text, 64, 0));
    tell(send(pair[0], "x", 1, MSG_NOSIGNAL));
}
