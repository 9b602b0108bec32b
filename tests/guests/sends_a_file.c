// Sends a file to its output past its own memory: sendfile(2) from an offset and from the position, splice(2), copy_file_range(2), in even pieces and odd ones.
// What an output can't take that way is left out. Usage: sends_a_file FILE
// run: /bin/bash
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return 2;
    long sums[5] = {0};
    ssize_t n;
    off_t at = 0;
    while ((n = sendfile(1, fd, &at, 1 << 20)) > 0) sums[0] += n;
    while ((n = sendfile(1, fd, NULL, 333333)) > 0) sums[1] += n;
    lseek(fd, 4321, SEEK_SET);
    while ((n = splice(fd, NULL, 1, NULL, 1 << 20, 0)) > 0) sums[2] += n;
    loff_t from = st.st_size / 2;
    while ((n = splice(fd, &from, 1, NULL, 77777, 0)) > 0) sums[3] += n;
    lseek(fd, 0, SEEK_SET);
    while ((n = copy_file_range(fd, NULL, 1, NULL, 700000, 0)) > 0) sums[4] += n;
    for (int i = 0; i < 5; i++) fprintf(stderr, "%ld at %lld\n", sums[i], (long long)lseek(fd, 0, SEEK_CUR));
    return 0;
}
