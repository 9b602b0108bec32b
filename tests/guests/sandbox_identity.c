// A program that gives up what it may: root directory, groups, ids, capabilities; and is no longer dumpable. Then it maps files,
// starts threads and gets signals as before.
#include "guest.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>

static void *work(void *argument) {
    char *p = malloc(100000);
    memset(p, 1, 100000);
    free(p);
    return argument;
}

static volatile int alarms;
static void on_alarm(int number) {
    alarms += number == SIGALRM;
}

static void go_on(int fd) {
    for (int i = 0; i < 3; i++) finish(start(work, NULL));
    char *p = must(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0));
    expect(p[1] == 'E' && p[2] == 'L');
    must(munmap(p, 8192));
    signal(SIGALRM, on_alarm);
    struct itimerval soon = {.it_value.tv_usec = 1000};
    must(setitimer(ITIMER_REAL, &soon, NULL));
    while (!alarms) burn(1000);
    say("goes on\n");
}

int main(void) {
    int fd = must(open("/proc/self/exe", O_RDONLY));
    int other = must(open("/proc/self/exe", O_RDONLY));
    must(prctl(PR_SET_DUMPABLE, 0));
    expect(prctl(PR_GET_DUMPABLE) == 0);
    go_on(fd);
    const char *dir = "jail";
    expect(mkdir(dir, 0755) == 0 || errno == EEXIST);
    if (geteuid() == 0) {
        must(prctl(PR_SET_KEEPCAPS, 1));
        must(chroot(dir));
        must(chdir("/"));
        fails(ENOENT, open("/proc/self/maps", O_RDONLY));
        must(setgroups(0, NULL));
        must(setresgid(65534, 65534, 65534));
        must(setresuid(65534, 65534, 65534));
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}, {0}};
        must(syscall(SYS_capset, &head, none));
    }
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    alarms = 0;
    go_on(other);
    say("ids %d %d, dumpable %d\n", getuid(), getgid(), prctl(PR_GET_DUMPABLE));
}
