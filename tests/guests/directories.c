// Reading directories: in pieces, again from a place, while they change; buffers that are too small.
// flags: -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <dirent.h>

static long entries(int fd, size_t room, uint64_t *sum) {
    static char buffer[8192];
    long n = 0;
    for (;;) {
        long r = must(syscall(SYS_getdents64, fd, buffer, room));
        if (r == 0) return n;
        for (long at = 0; at < r;) {
            unsigned short length;
            memcpy(&length, buffer + at + 16, 2);
            // Order is the file system's: a sum over names.
            *sum += hash_bytes(buffer + at + 19, strlen(buffer + at + 19));
            at += length;
            n++;
        }
    }
}

int main(void) {
    must(mkdir("many", 0700));
    char name[64];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "many/entry-%d", i);
        must(close(must(creat(name, 0600))));
    }
    int fd = must(open("many", O_RDONLY | O_DIRECTORY));
    for (size_t room = 64; room <= 8192; room *= 8) {
        uint64_t sum = 0;
        must(lseek(fd, 0, SEEK_SET));
        long n = entries(fd, room, &sum);
        say("%ld entries, %lx\n", n, sum);
    }
    must(lseek(fd, 0, SEEK_SET));
    char little[16];
    tell(syscall(SYS_getdents64, fd, little, sizeof little));
    tell(syscall(SYS_getdents64, fd, (void *)8, 4096));
    tell(syscall(SYS_getdents64, 1, little, 16));
    DIR *dir = opendir("many");
    expect(dir);
    for (int i = 0; i < 100; i++) expect(readdir(dir));
    long place = telldir(dir);
    struct dirent *next = readdir(dir);
    char wanted[256];
    strcpy(wanted, next->d_name);
    while (readdir(dir)) continue;
    seekdir(dir, place);
    next = readdir(dir);
    expect(next && strcmp(next->d_name, wanted) == 0);
    say("at %s, inode %lu\n", "a place", next->d_ino);
    must(closedir(dir));
    must(unlink("many/entry-7"));
    must(rename("many/entry-8", "entry-8"));
    uint64_t sum = 0;
    must(lseek(fd, 0, SEEK_SET));
    say("%ld left\n", entries(fd, 4096, &sum));
    tell(opendir("entry-8"));
}
