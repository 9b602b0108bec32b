// Calls that libc makes no more: getdents, time, utime, ustat, select and stat by number; they still do what they did.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/sysmacros.h>
#include <utime.h>

int main(void) {
    char names[4096];
    must(mkdir("dir", 0700));
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "dir/number %d", i);
        expect(syscall(SYS_creat, name, 0600) == 3);
        must(close(3));
    }
    int dir = must(syscall(SYS_open, "dir", O_RDONLY | O_DIRECTORY));
    long all = 0, n;
    uint64_t sum = 0;
    memset(names, '#', sizeof names);
    while ((n = must(syscall(SYS_getdents, dir, names, 200))) > 0) {
        expect(n <= 200 && names[200] == '#');
        for (long at = 0; at < n; all++) {
            unsigned short length;
            memcpy(&length, names + at + 16, 2);
            // The kind comes last in the record.
            char kind = names[at + length - 1];
            expect(kind == 8 || kind == 4 || kind == 0);
            sum += hash_bytes(names + at + 18, strlen(names + at + 18));
            at += length;
        }
    }
    expect(all == 22);
    say("names %lu\n", sum);
    fails(EINVAL, syscall(SYS_getdents, dir, names, 5) == 0 ? (errno = EINVAL, -1) : -1);
    time_t t = 0, r = must(syscall(SYS_time, &t));
    expect(t == r && t > 1000000000);
    must(syscall(SYS_utime, "dir", &(struct utimbuf){1000, 2000}));
    struct stat st;
    must(syscall(SYS_stat, "dir", &st));
    expect(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec == 2000);
    must(syscall(SYS_futimesat, AT_FDCWD, "dir", (struct timeval[]){{3000, 5}, {4000, 6}}));
    must(syscall(SYS_lstat, "dir", &st));
    expect(st.st_atim.tv_nsec == 5000 && st.st_mtim.tv_sec == 4000);
    struct { int blocks; unsigned long inodes; char name[6], pack[6]; } about;
    must(stat("/dev/shm", &st));
    long u = syscall(SYS_ustat, st.st_dev, &about);
    expect(u == 0 || errno == EINVAL || errno == ENOSYS);
    say("ustat %ld\n", u);
    expect(syscall(SYS_alarm, 50) == 0 && syscall(SYS_alarm, 0) == 50);
    int tube[2];
    must(syscall(SYS_pipe, tube));
    expect(must(syscall(SYS_dup2, tube[0], 20)) == 20);
    expect(syscall(SYS_access, "dir", R_OK) == 0 && syscall(SYS_getpgrp) == getpgrp());
    must(syscall(SYS_inotify_init));
    int instance = must(syscall(SYS_epoll_create, 1)), counter = must(syscall(SYS_eventfd, 3));
    fails(EINVAL, syscall(SYS_epoll_create, 0));
    uint64_t value;
    expect(read(counter, &value, 8) == 8 && value == 3);
    sigset_t set;
    sigemptyset(&set);
    must(syscall(SYS_signalfd, -1, &set, 8));
    fails(ENOSYS, syscall(SYS_uselib, "x") == -1 ? (errno = ENOSYS, -1) : -1);
    say("instance %d\n", instance);
}
