// Bytes that move from descriptor to descriptor inside the kernel: sendfile, copy_file_range, splice, tee, vmsplice.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

int main(void) {
    char from_name[] = "fromXXXXXX", to_name[] = "toXXXXXX";
    int from = must(mkstemp(from_name)), to = must(mkstemp(to_name));
    char text[8192], back[8192];
    for (size_t i = 0; i < sizeof text; i++) text[i] = 'a' + i % 26;
    expect(write(from, text, sizeof text) == sizeof text);
    off_t offset = 100;
    expect(sendfile(to, from, &offset, 1000) == 1000 && offset == 1100);
    expect(pread(to, back, 1000, 0) == 1000 && memcmp(back, text + 100, 1000) == 0);
    loff_t in = 0, out = 0;
    ssize_t n = copy_file_range(from, &in, to, &out, 4096, 0);
    if (n == 4096) expect(in == 4096 && out == 4096);
    int ends[2], second[2];
    must(pipe(ends));
    must(pipe(second));
    in = 26;
    expect(splice(from, &in, ends[1], NULL, 52, 0) == 52 && in == 78);
    expect(tee(ends[0], second[1], 26, 0) == 26);
    expect(read(second[0], back, 26) == 26 && memcmp(back, text, 26) == 0);
    expect(read(ends[0], back, 100) == 52);
    struct iovec part = {text, 10};
    ssize_t v = vmsplice(ends[1], &part, 1, 0);
    expect(v == 10 || errno == EINVAL || errno == ENOSYS);
    if (v == 10) expect(read(ends[0], back, 100) == 10 && memcmp(back, text, 10) == 0);
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    offset = 0;
    expect(sendfile(pair[0], from, &offset, 100) == 100);
    expect(recv(pair[1], back, 200, 0) == 100);
    must(unlink(from_name));
    must(unlink(to_name));
    say("copied %zd, spliced %zd\n", n, v);
}
