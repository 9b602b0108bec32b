// Policies and priorities: of the process, of threads, of input and output; attributes in structures of every size.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
    uint64_t more[4];
};

int main(void) {
    struct attributes a;
    memset(&a, '#', sizeof a);
    must(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
    expect(a.policy == SCHED_OTHER && a.priority == 0 && a.nice == getpriority(PRIO_PROCESS, 0));
    say("attributes of %u bytes, at most %u\n", a.size, a.most);
    memset(&a, '#', sizeof a);
    must(syscall(SYS_sched_getattr, 0, &a, 48, 0));
    expect(a.size == 48 && ((char *)&a)[48] == '#');
    fails(EINVAL, syscall(SYS_sched_getattr, 0, &a, 40, 0));
    fails(EINVAL, syscall(SYS_sched_getattr, 0, &a, 48, 1));
    fails(ESRCH, syscall(SYS_sched_getattr, 0x3fffffff, &a, 48, 0));
    a = (struct attributes){.size = 48, .policy = SCHED_BATCH, .nice = 3};
    must(syscall(SYS_sched_setattr, 0, &a, 0));
    expect(sched_getscheduler(0) == SCHED_BATCH && getpriority(PRIO_PROCESS, 0) == 3);
    // More than the kernel knows: it says how much it knows.
    a.size = sizeof a;
    a.more[3] = 1;
    fails(E2BIG, syscall(SYS_sched_setattr, 0, &a, 0));
    expect(a.size >= 48 && a.size < sizeof a);
    say("the kernel knows %u bytes\n", a.size);
    // No size at all stands for the first one there was.
    a.size = 0;
    must(syscall(SYS_sched_setattr, 0, &a, 0));
    a.size = 20;
    fails(E2BIG, syscall(SYS_sched_setattr, 0, &a, 0));
    expect(a.size >= 48 && a.size < sizeof a);
    a = (struct attributes){.size = 48, .policy = 99};
    fails(EINVAL, syscall(SYS_sched_setattr, 0, &a, 0));
    struct sched_param p = {0};
    must(sched_setscheduler(0, SCHED_IDLE, &p));
    expect(sched_getscheduler(0) == SCHED_IDLE);
    int r = sched_setscheduler(0, SCHED_OTHER, &p);
    expect(r == 0 || errno == EPERM);
    p.sched_priority = 5;
    fails(EINVAL, sched_setscheduler(0, SCHED_OTHER, &p));
    r = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p);
    expect(r == 0 || errno == EPERM);
    say("round robin: %d\n", r);
    struct timespec interval = {-1, -1};
    must(sched_rr_get_interval(0, &interval));
    expect(interval.tv_sec == 0);
    if (r == 0) {
        must(sched_getparam(0, &p));
        expect(p.sched_priority == 5 && sched_getscheduler(0) == (SCHED_RR | SCHED_RESET_ON_FORK));
        must(sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}));
    }
    for (int policy = 0; policy < 8; policy++) say("policy %d: %d to %d\n", policy, sched_get_priority_min(policy), sched_get_priority_max(policy));
    // Of input and output: class 2, level 6.
    must(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6));
    expect(syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 6));
    fails(EINVAL, syscall(SYS_ioprio_set, 1, 0, 7 << 13));
    fails(EINVAL, syscall(SYS_ioprio_get, 9, 0));
    fails(ESRCH, syscall(SYS_ioprio_get, 1, 0x3fffffff));
    r = nice(-10);
    expect(r != -1 || errno == EPERM || errno == 0);
    say("now %d\n", getpriority(PRIO_PROCESS, 0));
}
