// A call whose effects a recorder may not know: it writes to two places of the program, near its pointers and behind them. The tests
// make the table forget `preadv`, `recvmsg` and `ioctl`, so that only watching the memory shows what they did.
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

int main(void) {
    int fd = must(open("/dev/urandom", O_RDONLY));
    size_t length = 3 * 4096 + 17;
    unsigned char *near_bytes = (unsigned char *)malloc(64), *far_bytes = (unsigned char *)calloc(1, length);
    struct iovec parts[2] = {{near_bytes, 64}, {far_bytes, length}};
    for (int i = 0; i < 5; i++) {
        ssize_t n = must(preadv(fd, parts, 2, 0));
        say("%zd bytes, hash %lu\n", n, mix(hash_bytes(near_bytes, 64)) + hash_bytes(far_bytes, length));
    }
    int pair[2], waiting = -1;
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    expect(send(pair[0], near_bytes, 64, 0) == 64);
    must(ioctl(pair[1], FIONREAD, &waiting));
    expect(waiting == 64);
    memset(far_bytes, 0, length);
    struct iovec part = {far_bytes + 4090, 100};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    expect(recvmsg(pair[1], &message, 0) == 64);
    expect(memcmp(far_bytes + 4090, near_bytes, 64) == 0);
    say("received, hash %lu\n", hash_bytes(far_bytes, length));
}
