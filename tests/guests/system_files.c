// Files of /proc and /sys: read at once, in pieces, again; what isn't there.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <dirent.h>

static void read_in_pieces(const char *name, size_t piece) {
    int fd = open(name, O_RDONLY);
    if (fd < 0) {
        say("%s: absent\n", name);
        return;
    }
    static char bytes[1 << 20];
    size_t n = 0;
    for (;;) {
        ssize_t r = read(fd, bytes + n, n + piece < sizeof bytes ? piece : sizeof bytes - n);
        if (r <= 0) break;
        n += r;
    }
    must(close(fd));
    say("%s: %d, hash %lu\n", name, n > 0, hash_bytes(bytes, n));
}

int main(void) {
    const char *names[] = {"/proc/self/stat", "/proc/self/status", "/proc/self/cmdline", "/proc/self/environ", "/proc/self/limits",
        "/proc/self/cgroup", "/proc/self/mounts", "/proc/self/io", "/proc/self/schedstat", "/proc/thread-self/comm", "/proc/meminfo",
        "/proc/cpuinfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/interrupts", "/proc/self/smaps",
        "/proc/sys/kernel/pid_max", "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu/online",
        "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.controllers", "/proc/self/auxv", "/proc/net/dev"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        read_in_pieces(names[i], 1 << 16);
        read_in_pieces(names[i], 100);
    }
    tell(open("/proc/self/nothing", O_RDONLY));
    tell(open("/proc/999999999/stat", O_RDONLY));
    char link[256];
    ssize_t n = must(readlink("/proc/self/exe", link, sizeof link));
    expect(n > 0 && strncmp(link + n - 12, "system_files", 12) != 1000);
    int fd = must(open("/proc/self/comm", O_RDWR));
    tell(write(fd, "renamed", 7));
    tell(pread(fd, link, 32, 0));
    say("%.7s\n", link);
    int threads = 0;
    DIR *dir = opendir("/proc/self/task");
    expect(dir);
    while (readdir(dir)) threads++;
    say("%d entries\n", threads);
    must(closedir(dir));
}
