// Limits of the process: reading and setting them, files that may not grow, processor time.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

static volatile sig_atomic_t count;
static void handler(int number) { (void)number; count++; }

int main(void) {
    struct rlimit l = {100, 50}, old;
    tell(setrlimit(RLIMIT_CORE, &l));
    tell(getrlimit(99, &l));
    tell(getrlimit(RLIMIT_CORE, (void *)8));
    must(getrlimit(RLIMIT_CORE, &old));
    l = (struct rlimit){0, old.rlim_max};
    tell(setrlimit(RLIMIT_CORE, &l));
    must(prlimit(0, RLIMIT_CORE, NULL, &l));
    say("core %lu\n", (unsigned long)l.rlim_cur);
    tell(prlimit(0x3fffffff, RLIMIT_CORE, NULL, &l));
    signal(SIGXFSZ, handler);
    must(getrlimit(RLIMIT_FSIZE, &old));
    l = (struct rlimit){1000, old.rlim_max};
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    must(setrlimit(RLIMIT_FSIZE, &l));
    static char bytes[2000];
    tell(write(fd, bytes, 900));
    tell(write(fd, bytes, 900));
    tell(write(fd, bytes, 900));
    tell(ftruncate(fd, 2000));
    tell(count);
    must(setrlimit(RLIMIT_FSIZE, &old));
    tell(write(fd, bytes, 900));
    struct rusage u;
    tell(getrusage(RUSAGE_SELF, &u));
    tell(getrusage(77, &u));
    tell(getrusage(RUSAGE_THREAD, &u));
    tell(getpriority(PRIO_PROCESS, 0));
    tell(setpriority(PRIO_PROCESS, 0, 5));
    tell(getpriority(PRIO_PROCESS, 0));
    tell(nice(1));
    tell(getpriority(99, 0));
    tell(sched_getscheduler(0));
    struct sched_param p;
    tell(sched_getparam(0, &p));
    tell(sched_get_priority_max(SCHED_FIFO));
    tell(sched_setscheduler(0, 99, &p));
}
