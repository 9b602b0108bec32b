// Files in memory: sealing against writing, growing and shrinking, and what mappings have to do with it.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
int main(void) {
    int fd = must(memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    must(ftruncate(fd, 8192));
    tell(fcntl(fd, F_GET_SEALS));
    char *p = (char *)must(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    strcpy(p, "through the mapping");
    tell(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    tell(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    tell(ftruncate(fd, 16384));
    tell(pwrite(fd, "x", 1, 8192));
    tell(pwrite(fd, "write", 5, 4096));
    expect(memcmp(p + 4096, "write", 5) == 0);
    must(munmap(p, 8192));
    tell(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK));
    tell(pwrite(fd, "x", 1, 0));
    tell(ftruncate(fd, 4096));
    tell(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    p = (char *)must(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    p[0] = 'T';
    say("%s\n", p);
    tell(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
    tell(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    tell(fcntl(fd, F_GET_SEALS));
    int plain = must(memfd_create("plain", 0));
    tell(fcntl(plain, F_GET_SEALS));
    tell(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE));
    tell(memfd_create("flags", 0x4000));
    char text[64];
    ssize_t n = readlink("/proc/self/fd/3", text, sizeof text);
    say("%.*s\n", (int)n, text);
}
