// /proc/self/fdinfo: position, flags and what is special of every kind of descriptor.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static char text[4096];

static const char *facts(int fd) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    int file = must(open(name, O_RDONLY));
    ssize_t n = must(read(file, text, sizeof text - 1));
    text[n] = 0;
    must(close(file));
    return text;
}

static unsigned long fact(int fd, const char *name, int base) {
    const char *line = strstr(facts(fd), name);
    expect(line && line[strlen(name)] == ':');
    return strtoul(line + strlen(name) + 1, NULL, base);
}

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR | O_CLOEXEC | O_APPEND, 0600));
    expect(write(fd, "0123456789", 10) == 10);
    must(lseek(fd, 7, SEEK_SET));
    expect(fact(fd, "pos", 10) == 7 && (fact(fd, "flags", 8) & ~0100000ul) == (O_RDWR | O_APPEND | O_CLOEXEC));
    must(flock(fd, LOCK_EX));
    expect(strstr(facts(fd), "lock:") && strstr(text, "FLOCK") && strstr(text, "WRITE"));
    int counter = must(eventfd(0x25, EFD_NONBLOCK));
    expect(fact(counter, "eventfd-count", 16) == 0x25);
    eventfd_t value;
    must(eventfd_read(counter, &value));
    expect(fact(counter, "eventfd-count", 16) == 0);
    int instance = must(epoll_create1(0));
    must(epoll_ctl(instance, EPOLL_CTL_ADD, counter, &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 0xabcd}));
    expect(fact(instance, "tfd", 10) == (unsigned long)counter && strstr(text, "data:             abcd"));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    expect(fact(must(signalfd(-1, &set, 0)), "sigmask", 16) == 1ul << (SIGUSR2 - 1));
    int timer = must(timerfd_create(CLOCK_MONOTONIC, 0));
    must(timerfd_settime(timer, 0, &(struct itimerspec){{5, 0}, {1000, 0}}, NULL));
    expect(fact(timer, "clockid", 10) == CLOCK_MONOTONIC && fact(timer, "ticks", 10) == 0 && strstr(text, "it_interval: (5, 0)"));
    int watches = must(inotify_init1(0));
    int watch = must(inotify_add_watch(watches, ".", IN_CREATE));
    const char *line = strstr(facts(watches), "inotify wd:");
    expect(line && strtol(line + 11, NULL, 16) == watch);
    int self = must(syscall(SYS_pidfd_open, getpid(), 0));
    expect(fact(self, "Pid", 10) == (unsigned long)getpid());
    int tube[2];
    must(pipe(tube));
    expect(fact(tube[1], "flags", 8) == O_WRONLY);
    int memory = must(memfd_create("a name", 0));
    char link[64], target[128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", memory);
    ssize_t n = must(readlink(link, target, sizeof target));
    expect(n > 14 && memcmp(target, "/memfd:a name ", 14) == 0);
    fails(ENOENT, open("/proc/self/fdinfo/777", O_RDONLY));
    say("mount %lu, inode %lu\n", fact(fd, "mnt_id", 10), fact(fd, "ino", 10));
}
