// Ordinary files: read, write, seek, vectors, positions, partial transfers, sizes.
// variant: static -static
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    char name[] = "dataXXXXXX";
    int fd = must(mkstemp(name));
    char text[10000], back[10000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)mix(i);
    expect(write(fd, text, sizeof text) == sizeof text);
    expect(lseek(fd, 0, SEEK_CUR) == sizeof text);
    expect(lseek(fd, -4, SEEK_END) == sizeof text - 4);
    expect(read(fd, back, sizeof back) == 4 && memcmp(back, text + sizeof text - 4, 4) == 0);
    expect(read(fd, back, sizeof back) == 0);
    expect(pread(fd, back, 100, 5000) == 100 && memcmp(back, text + 5000, 100) == 0);
    expect(pwrite(fd, "PWRITE", 6, 9997) == 6);
    expect(lseek(fd, 0, SEEK_END) == 10003);
    struct iovec parts[3] = {{back, 10}, {back + 10, 0}, {back + 100, 4000}};
    must(lseek(fd, 6000, SEEK_SET));
    expect(readv(fd, parts, 3) == 4003);
    expect(lseek(fd, 0, SEEK_CUR) == 10003);
    expect(memcmp(back, text + 6000, 10) == 0 && memcmp(back + 100, text + 6010, 3900) == 0);
    expect(preadv(fd, parts, 3, 100) == 4010 && memcmp(back + 100, text + 110, 4000) == 0);
    struct iovec out[2] = {{text, 3}, {text + 50, 5}};
    must(lseek(fd, 0, SEEK_SET));
    expect(writev(fd, out, 2) == 8);
    expect(pwritev(fd, out, 2, 1000) == 8);
    expect(preadv2(fd, parts, 3, -1, 0) == 4010);
    expect(preadv2(fd, parts, 3, 0, RWF_HIPRI) == 4010 || errno == EOPNOTSUPP);
    must(ftruncate(fd, 20000));
    expect(pread(fd, back, 100, 15000) == 100 && back[0] == 0 && back[99] == 0);
    if (fallocate(fd, 0, 0, 30000) == 0) expect(lseek(fd, 0, SEEK_END) == 30000);
    must(fsync(fd));
    must(fdatasync(fd));
    must(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    long hole = lseek(fd, 0, SEEK_HOLE);
    struct stat st;
    must(fstat(fd, &st));
    say("inode %lu, %ld blocks, hole at %ld, changed at %ld.%09ld\n", st.st_ino, st.st_blocks, hole, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    must(close(fd));
    FILE *stream = fopen(name, "r+");
    expect(stream != NULL);
    expect(fseek(stream, 1000, SEEK_SET) == 0);
    int c = fgetc(stream);
    expect(c == (unsigned char)text[0]);
    expect(fclose(stream) == 0);
    int a = must(open(name, O_WRONLY | O_APPEND));
    expect(write(a, "end", 3) == 3);
    close(a);
    must(truncate(name, 100));
    must(stat(name, &st));
    expect(st.st_size == 100);
    must(unlink(name));
    fails(ENOENT, unlink(name));
    // What the kernel makes up differs in every run.
    char now[256];
    int proc = must(open("/proc/uptime", O_RDONLY));
    ssize_t n = must(read(proc, now, sizeof now));
    say("uptime hash %lu\n", hash_bytes(now, n));
    close(proc);
}
