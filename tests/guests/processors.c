// Processors as the system shows them: sysconf, affinity, /sys and /proc agree; masks that are too small or empty.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <dirent.h>
#include <sys/sysinfo.h>

static long count_list(const char *name) {
    char text[4096];
    int fd = open(name, O_RDONLY);
    if (fd < 0) return -1;
    ssize_t n = must(read(fd, text, sizeof text - 1));
    text[n] = 0;
    must(close(fd));
    long count = 0;
    for (char *p = text; *p && *p != '\n';) {
        long from = strtol(p, &p, 10), to = from;
        if (*p == '-') to = strtol(p + 1, &p, 10);
        count += to - from + 1;
        if (*p == ',') p++;
    }
    return count;
}

int main(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN), configured = sysconf(_SC_NPROCESSORS_CONF);
    expect(online >= 1 && configured >= online && get_nprocs() == online);
    long listed = count_list("/sys/devices/system/cpu/online");
    expect(listed == online || listed == -1);
    DIR *dir = opendir("/sys/devices/system/cpu");
    long directories = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) directories += strncmp(e->d_name, "cpu", 3) == 0 && e->d_name[3] >= '0' && e->d_name[3] <= '9';
    if (dir) must(closedir(dir));
    cpu_set_t all, one, now;
    must(sched_getaffinity(0, sizeof all, &all));
    int most = CPU_COUNT(&all), first = 0;
    expect(most >= 1 && most <= configured);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    must(sched_setaffinity(0, sizeof one, &one));
    must(sched_getaffinity(0, sizeof now, &now));
    expect(CPU_EQUAL(&now, &one));
    unsigned cpu = 999, node = 999;
    must(getcpu(&cpu, &node));
    expect(cpu < (unsigned)configured && sched_getcpu() >= 0);
    must(sched_setaffinity(0, sizeof all, &all));
    pthread_attr_t attributes;
    ok(pthread_getattr_np(pthread_self(), &attributes));
    ok(pthread_getaffinity_np(pthread_self(), sizeof now, &now));
    expect(CPU_EQUAL(&now, &all));
    // The call says how many bytes it filled; libc hides that.
    unsigned long words[128];
    memset(words, 0xff, sizeof words);
    long bytes = must(syscall(SYS_sched_getaffinity, 0, sizeof words, words));
    expect(bytes % 8 == 0 && words[bytes / 8] == ~0ul);
    fails(EINVAL, syscall(SYS_sched_getaffinity, 0, 1, words));
    fails(EINVAL, syscall(SYS_sched_getaffinity, 0, 0, words));
    CPU_ZERO(&one);
    fails(EINVAL, sched_setaffinity(0, sizeof one, &one));
    fails(ESRCH, sched_getaffinity(0x3fffffff, sizeof now, &now));
    say("%ld of %ld, %ld in /sys, %d allowed, first %d, node %u, %ld bytes\n", online, configured, directories, most, first, node, bytes);
}
