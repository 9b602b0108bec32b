// prctl and its kin: names, death signals, capabilities, personalities, what can't be asked.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/personality.h>
#include <sys/prctl.h>

int main(void) {
    char name[32] = "";
    tell(prctl(PR_SET_NAME, "a name that is too long"));
    tell(prctl(PR_GET_NAME, name));
    say("%s\n", name);
    int v = 77;
    tell(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    tell(prctl(PR_GET_PDEATHSIG, &v));
    say("%d\n", v);
    tell(prctl(PR_SET_PDEATHSIG, 99));
    tell(prctl(PR_SET_PDEATHSIG, 0));
    tell(prctl(PR_GET_DUMPABLE));
    tell(prctl(PR_SET_DUMPABLE, 0));
    tell(prctl(PR_GET_DUMPABLE));
    tell(prctl(PR_SET_DUMPABLE, 7));
    tell(prctl(PR_SET_KEEPCAPS, 1));
    tell(prctl(PR_GET_KEEPCAPS));
    tell(prctl(PR_SET_TIMERSLACK, 12345));
    tell(prctl(PR_GET_TIMERSLACK));
    tell(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    tell(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    tell(prctl(PR_CAPBSET_READ, 0));
    tell(prctl(PR_CAPBSET_READ, 99));
    tell(prctl(PR_SET_CHILD_SUBREAPER, 1));
    tell(prctl(PR_GET_CHILD_SUBREAPER, &v));
    say("%d\n", v);
    tell(prctl(99999));
    tell(prctl(PR_GET_NAME, (void *)8));
    tell(prctl(PR_SET_NAME, (void *)8));
    tell(umask(027));
    tell(umask(022));
    unsigned header[2] = {0x20080522, 0}, data[6];
    tell(syscall(SYS_capget, header, data));
    header[0] = 1;
    tell(syscall(SYS_capget, header, data));
    say("version %x\n", header[0]);
    gid_t groups[256];
    int n = must(getgroups(0, NULL));
    expect(getgroups(256, groups) == n);
    uid_t r, e, s;
    must(getresuid(&r, &e, &s));
    say("uids %u %u %u\n", r, e, s);
    tell(getpgid(0) == getpgrp());
    tell(getsid(0x3fffffff));
    tell(syscall(SYS_membarrier, 0, 0, 0) >= 0);
    tell(syscall(SYS_membarrier, 99999, 0, 0));
    tell(syscall(SYS_getcpu, NULL, NULL, NULL));
    tell(syscall(9999));
    tell(syscall(-1));
}
