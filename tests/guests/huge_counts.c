// Counts far beyond the buffer: a call moves what there is, at most 2 GB less a page, and touches nothing behind it.
// flags: -Wno-stringop-overflow -Wno-stringop-overread
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

static volatile size_t huge = (size_t)1 << 40, signed_most = SSIZE_MAX, most = 0x7ffff000;

int main(void) {
    // A page that ends before nothing, far from the end of all addresses: what would reach beyond that is refused at once.
    char *page = (char *)must(mmap((void *)0x200000000000, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(page + 4096, 4096));
    char *end = page + 4096 - 10;
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), tube[2], pair[2];
    expect(write(fd, "0123456789", 10) == 10);
    memset(page, '#', 4096);
    expect(pread(fd, end, huge, 0) == 10 && memcmp(end - 1, "#0123456789", 11) == 0);
    expect(pread(fd, page, huge, 5) == 5 && page[5] == '#');
    fails(EFAULT, pread(fd, page, signed_most, 5));
    fails(EINVAL, pread(fd, page, huge, -1));
    must(lseek(fd, 8, SEEK_SET));
    expect(read(fd, end, most) == 2 && read(fd, end, most) == 0);
    must(pipe(tube));
    expect(write(tube[1], "abc", 3) == 3 && read(tube[0], end, huge) == 3 && memcmp(end, "abc3", 4) == 0);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    expect(send(pair[0], "defg", 4, 0) == 4 && recv(pair[1], end, most, 0) == 4 && memcmp(end, "defg4", 5) == 0);
    struct iovec parts[2] = {{end, 4}, {end + 4, huge}};
    expect(preadv(fd, parts, 2, 0) == 10);
    parts[1].iov_len = (size_t)SSIZE_MAX + 1;
    fails(EINVAL, preadv(fd, parts, 2, 0));
    // As much as there is memory to read from.
    int null = must(open("/dev/null", O_RDWR));
    ssize_t n = write(null, end, huge);
    // All that it ever takes in one call, or a part.
    expect(n > 0 && n <= (ssize_t)most);
    fails(EFAULT, write(fd, end + 10, most));
    n = pwrite(fd, end, most, 0);
    expect(n == 10 || (n == -1 && errno == EFAULT));
    say("written to a file: %zd\n", n);
    n = getrandom(end, 10, GRND_NONBLOCK);
    expect(n == 10);
    n = syscall(SYS_getrandom, end, huge, 0);
    expect(n == 10 || (n == -1 && errno == EFAULT));
    say("random: %zd\n", n);
    expect(read(null, end, huge) == 0);
    say("hash %lu\n", hash_bytes(page, 4096));
}
