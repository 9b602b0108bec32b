// What /proc says of the program agrees with what the program sees of itself.
#include "guest.h"

static char text[1 << 20];

static size_t slurp(const char *path) {
    int fd = must(open(path, O_RDONLY));
    size_t length = 0;
    for (ssize_t n; (n = must(read(fd, text + length, sizeof text - 1 - length))) > 0;) length += n;
    text[length] = 0;
    must(close(fd));
    return length;
}

static bool mapped(const void *address) {
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (unsigned long)address >= from && (unsigned long)address < to) return true;
    }
    return false;
}

int main(void) {
    int local = 0;
    void *heap = malloc(100);
    say("maps hash %lu\n", hash_bytes(text, slurp("/proc/self/maps")));
    expect(mapped(&local) && mapped(main) && mapped(heap) && mapped(text) && mapped(printf));
    expect(strstr(text, "[stack]") != NULL);
    say("status hash %lu\n", hash_bytes(text, slurp("/proc/self/status")));
    char pid[32];
    snprintf(pid, sizeof pid, "Pid:\t%d\n", getpid());
    expect(strstr(text, pid) != NULL);
    say("stat hash %lu\n", hash_bytes(text, slurp("/proc/self/stat")));
    say("cmdline hash %lu\n", hash_bytes(text, slurp("/proc/self/cmdline")));
    expect(strstr(text, "proc_files") != NULL);
    say("comm hash %lu\n", hash_bytes(text, slurp("/proc/self/comm")));
    say("meminfo hash %lu\n", hash_bytes(text, slurp("/proc/meminfo")));
    say("cpuinfo hash %lu\n", hash_bytes(text, slurp("/proc/cpuinfo")));
    say("stat of all hash %lu\n", hash_bytes(text, slurp("/proc/stat")));
    char name[PATH_MAX];
    ssize_t n = must(readlink("/proc/self/exe", name, sizeof name - 1));
    name[n] = 0;
    expect(strstr(name, "proc_files") != NULL);
    say("exe of %zd bytes\n", n);
    n = must(readlink("/proc/self/fd/0", name, sizeof name - 1));
    say("descriptor 0 leads to %zd bytes\n", n);
}
