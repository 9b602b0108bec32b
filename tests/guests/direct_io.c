// O_DIRECT: aligned transfers, and what happens with those that are not.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

enum { BLOCK = 4096 };

int main(void) {
    int fd = open("file", O_CREAT | O_RDWR | O_DIRECT, 0600);
    if (fd < 0) {
        expect(errno == EINVAL);
        say("no direct transfers here\n");
        return 0;
    }
    expect(fcntl(fd, F_GETFL) & O_DIRECT);
    char *buffer = (char *)must(mmap(NULL, 8 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 4; i++) memset(buffer + i * BLOCK, 'a' + i, BLOCK);
    expect(write(fd, buffer, 4 * BLOCK) == 4 * BLOCK);
    expect(pread(fd, buffer + 4 * BLOCK, 2 * BLOCK, BLOCK) == 2 * BLOCK);
    expect(buffer[4 * BLOCK] == 'b' && buffer[6 * BLOCK - 1] == 'c');
    expect(pread(fd, buffer + 4 * BLOCK, 4 * BLOCK, 3 * BLOCK) == BLOCK && buffer[4 * BLOCK] == 'd');
    expect(pread(fd, buffer, BLOCK, 4 * BLOCK) == 0);
    tell(pread(fd, buffer, BLOCK, 1));
    tell(pread(fd, buffer, 100, 0));
    tell(pread(fd, buffer + 1, BLOCK, 0));
    tell(pwrite(fd, buffer, 100, 0));
    // Without the flag everything is allowed again, and sees the same file.
    must(fcntl(fd, F_SETFL, 0));
    expect(pwrite(fd, "odd", 3, BLOCK + 1) == 3);
    must(fcntl(fd, F_SETFL, O_DIRECT));
    expect(pread(fd, buffer, BLOCK, BLOCK) == BLOCK && memcmp(buffer, "boddb", 5) == 0);
    struct statx x;
    must(statx(fd, "", AT_EMPTY_PATH, 0x2000, &x));
    say("alignment known: %d\n", (x.stx_mask & 0x2000) != 0);
    int tube[2];
    must(pipe(tube));
    fails(EINVAL, fcntl(must(open("/proc/self/stat", O_RDONLY)), F_SETFL, O_DIRECT));
}
