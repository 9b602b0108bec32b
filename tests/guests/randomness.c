// Random bytes from every place a program takes them from.
#include "guest.h"
#include <sys/auxv.h>
#include <sys/random.h>

static void from_file(const char *path) {
    unsigned char bytes[64];
    int fd = must(open(path, O_RDONLY));
    ssize_t n = must(read(fd, bytes, sizeof bytes));
    expect(n > 0);
    close(fd);
    say("%s: hash %lu\n", path, hash_bytes(bytes, n));
}

int main(void) {
    unsigned char bytes[256];
    expect(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
    say("getrandom: hash %lu\n", hash_bytes(bytes, sizeof bytes));
    expect(getrandom(bytes, 3, GRND_NONBLOCK) == 3);
    say("getrandom: %u %u %u\n", bytes[0], bytes[1], bytes[2]);
    expect(getentropy(bytes, sizeof bytes) == 0);
    say("getentropy: hash %lu\n", hash_bytes(bytes, sizeof bytes));
    say("at_random: hash %lu\n", hash_bytes((const void *)getauxval(AT_RANDOM), 16));
    say("canary: 0x%lx\n", ({ unsigned long word; __asm__("mov %%fs:0x28, %0" : "=r"(word)); word; }));
    from_file("/dev/urandom");
    from_file("/proc/sys/kernel/random/uuid");
    from_file("/proc/sys/kernel/random/boot_id");
    char name[] = "randomXXXXXX";
    int fd = must(mkstemp(name));
    say("a name: %lu\n", hash_bytes(name, strlen(name)));
    must(unlink(name));
    close(fd);
    void *block = malloc(100);
    say("addresses 0x%lx 0x%lx 0x%lx 0x%lx\n", (unsigned long)block, (unsigned long)&fd, (unsigned long)main, (unsigned long)printf);
}
