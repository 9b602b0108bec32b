// sendfile, copy_file_range, splice and tee: offsets that move and that don't, ends of files, wrong kinds, overlaps.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/sendfile.h>

int main(void) {
    int a = must(open("a", O_CREAT | O_RDWR, 0600)), b = must(open("b", O_CREAT | O_RDWR, 0600));
    tell(write(a, "0123456789abcdefghij", 20));
    off_t at = 5;
    tell(sendfile(b, a, &at, 10));
    tell(at);
    tell(lseek(a, 0, SEEK_CUR));
    tell(sendfile(b, a, &at, 100));
    tell(sendfile(b, a, &at, 100));
    tell(lseek(b, 0, SEEK_CUR));
    at = -1;
    tell(sendfile(b, a, &at, 1));
    tell(sendfile(999, a, NULL, 1));
    tell(sendfile(b, a, (off_t *)8, 1));
    int tube[2], other[2];
    must(pipe2(tube, O_NONBLOCK));
    must(pipe2(other, O_NONBLOCK));
    tell(sendfile(b, tube[0], NULL, 10));
    at = 3;
    tell(splice(a, &at, tube[1], NULL, 7, 0));
    tell(at);
    tell(tee(tube[0], other[1], 100, 0));
    char text[32] = "";
    tell(read(other[0], text, 32));
    tell(read(tube[0], text, 3));
    say("%s\n", text);
    tell(splice(tube[0], NULL, b, NULL, 100, 0));
    tell(splice(tube[0], NULL, b, NULL, 100, 0));
    tell(splice(tube[0], &at, b, NULL, 100, 0));
    tell(splice(a, NULL, b, NULL, 10, 0));
    tell(splice(tube[0], NULL, tube[1], NULL, 10, 0));
    tell(tee(tube[0], tube[1], 10, 0));
    tell(tee(a, tube[1], 10, 0));
    off_t from = 0, to = 5;
    tell(copy_file_range(a, &from, a, &to, 10, 0));
    tell(copy_file_range(a, &from, b, &to, 10, 99));
    long r = copy_file_range(a, &from, b, &to, 100, 0);
    expect(r == 20 || errno == EXDEV || errno == EOPNOTSUPP);
    tell(lseek(b, 0, SEEK_END));
    int null = must(open("/dev/null", O_WRONLY));
    from = 0;
    tell(sendfile(null, a, &from, 20));
    int reader = must(open("a", O_RDONLY));
    tell(copy_file_range(a, NULL, reader, NULL, 5, 0));
    tell(sendfile(reader, a, NULL, 5));
}
