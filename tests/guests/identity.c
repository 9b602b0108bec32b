// Who and where the program is: ids, limits, machine, resource usage, processors.
#include "guest.h"
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>

int main(void) {
    say("pid %d tid %ld parent %d group %d session %d\n", getpid(), gettid_raw(), getppid(), getpgrp(), getsid(0));
    expect(getpid() == gettid_raw());
    uid_t r, e, s;
    must(getresuid(&r, &e, &s));
    say("uid %u %u %u %u\n", r, e, s, getuid());
    must(getresgid(&r, &e, &s));
    say("gid %u %u %u %u\n", r, e, s, getegid());
    gid_t groups[256];
    int n = must(getgroups(256, groups));
    say("%d groups, hash %lu\n", n, hash_bytes(groups, n * sizeof *groups));
    struct utsname u;
    must(uname(&u));
    expect(strcmp(u.sysname, "Linux") == 0 && strcmp(u.machine, "x86_64") == 0);
    say("node %lu release %lu version %lu\n", hash_bytes(u.nodename, strlen(u.nodename)), hash_bytes(u.release, strlen(u.release)), hash_bytes(u.version, strlen(u.version)));
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        must(getrlimit((__rlimit_resource_t)i, &limit));
        say("limit %d: %lu %lu\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
    burn(1000000);
    struct rusage usage;
    must(getrusage(RUSAGE_SELF, &usage));
    say("usage: %ld us user, %ld us system, %ld kB, %ld faults\n", usage.ru_utime.tv_usec, usage.ru_stime.tv_usec, usage.ru_maxrss, usage.ru_minflt);
    struct sysinfo info;
    must(sysinfo(&info));
    say("uptime %ld, free %lu, processes %d\n", info.uptime, info.freeram, info.procs);
    struct tms ticks;
    say("ticks %ld", (long)times(&ticks));
    say(" and %ld\n", (long)clock());
    cpu_set_t set;
    must(sched_getaffinity(0, sizeof set, &set));
    unsigned cpu, node;
    must(getcpu(&cpu, &node));
    say("%d of %d processors, now on %u, node %u\n", CPU_COUNT(&set), get_nprocs(), cpu, node);
    say("priority %d, policy %d, umask 0x%x\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), umask(022));
    double load[3];
    say("load %d\n", getloadavg(load, 3) == 3 ? (int)(load[0] * 100) : -1);
}
