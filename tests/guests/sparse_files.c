// Holes and large offsets: where data is, what reading a hole gives, files of a terabyte that take no room.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
int main(void) {
    int fd = must(open("sparse", O_CREAT | O_RDWR, 0600));
    char text[16] = "";
    tell(pwrite(fd, "far", 3, 1l << 32));
    tell(lseek(fd, 0, SEEK_END));
    tell(lseek(fd, 0, SEEK_DATA));
    tell(lseek(fd, 0, SEEK_HOLE));
    tell(lseek(fd, 1l << 33, SEEK_DATA));
    tell(pread(fd, text, 16, (1l << 32) - 4));
    say("%d %.3s\n", text[3], text + 4);
    tell(ftruncate(fd, 1l << 40));
    struct stat st;
    must(fstat(fd, &st));
    say("size %ld, little room %d\n", st.st_size, st.st_blocks < 1000);
    tell(pread(fd, text, 16, (1l << 40) - 8));
    tell(pread(fd, text, 16, 1l << 40));
    tell(pread(fd, text, 16, -1));
    tell(pwrite(fd, text, 16, INT64_MAX));
    tell(lseek(fd, -1, SEEK_SET));
    tell(lseek(fd, INT64_MAX, SEEK_SET));
    tell(lseek(fd, 10, SEEK_CUR));
    tell(lseek(fd, 0, 99));
    tell(ftruncate(fd, -1));
    tell(fallocate(fd, 0, -1, 1));
    tell(fallocate(fd, 0, 0, 0));
    tell(ftruncate(fd, 0));
    tell(fallocate(fd, 0, 0, 65536));
    must(fstat(fd, &st));
    say("size %ld, room %d\n", st.st_size, st.st_blocks >= 128);
    tell(fallocate(fd, FALLOC_FL_KEEP_SIZE, 65536, 65536));
    tell(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
    tell(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 4096, 4096));
    must(fstat(fd, &st));
    say("size %ld\n", st.st_size);
}
