// Vectored reads and writes: parts of nothing, too many, positions, flags, short results in the middle of a part.
// flags: -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    char a[8] = "", b[8] = "", c[8] = "";
    struct iovec out[] = {{(void *)"one", 3}, {NULL, 0}, {(void *)"two", 3}, {(void *)"three", 5}};
    struct iovec in[] = {{a, 4}, {b, 0}, {b, 4}, {c, 8}};
    tell(writev(fd, out, 4));
    tell(pwritev(fd, out, 4, 100));
    tell(preadv(fd, in, 4, 0));
    say("%.4s %.4s %.8s\n", a, b, c);
    tell(preadv(fd, in, 4, 105));
    tell(preadv(fd, in, 4, 1000));
    tell(preadv(fd, in, 0, 0));
    tell(preadv(fd, in, -1, 0));
    tell(preadv(fd, in, 1025, 0));
    tell(preadv(fd, in, 4, -5));
    tell(preadv2(fd, in, 4, -1, 0));
    tell(lseek(fd, 0, SEEK_CUR));
    tell(preadv2(fd, in, 4, 0, 0x10000));
    tell(pwritev2(fd, out, 4, 0, RWF_APPEND));
    tell(lseek(fd, 0, SEEK_END));
    in[1] = (struct iovec){(void *)8, 4};
    tell(preadv(fd, in, 4, 0));
    in[1].iov_len = (size_t)-1;
    tell(preadv(fd, in, 4, 0));
    tell(readv(fd, (struct iovec *)8, 1));
    int tube[2];
    must(pipe(tube));
    tell(writev(tube[1], out, 4));
    in[1] = (struct iovec){b, 1};
    tell(readv(tube[0], in, 2));
    tell(readv(tube[0], in, 4));
    tell(pwritev(tube[1], out, 4, 0));
    struct iovec self[] = {{a, 8}}, from[] = {{(void *)"remote!", 8}};
    long r = process_vm_readv(getpid(), self, 1, from, 1, 0);
    expect(r == 8 || errno == EPERM || errno == ENOSYS);
    struct iovec many[1024];
    for (int i = 0; i < 1024; i++) many[i] = (struct iovec){(void *)("0123456789" + i % 10), 1};
    tell(pwritev(fd, many, 1024, 0));
    tell(pread(fd, a, 8, 512));
    say("%.8s\n", a);
}
