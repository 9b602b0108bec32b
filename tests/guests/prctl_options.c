// prctl(2): what is set is read back, what makes no sense is EINVAL, and what a recorder can't give is an error.
#include "guest.h"
#include <sys/prctl.h>
#include <x86intrin.h>

static sigjmp_buf back;
static void on_fault(int number) {
    siglongjmp(back, number);
}

// rdtsc faults when the program wants it to.
static void clock_instruction(void) {
    int mode = 0;
    must(prctl(PR_GET_TSC, &mode));
    expect(mode == PR_TSC_ENABLE);
    must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    must(prctl(PR_GET_TSC, &mode));
    expect(mode == PR_TSC_SIGSEGV);
    signal(SIGSEGV, on_fault);
    int caught = sigsetjmp(back, 1);
    if (caught == 0) {
        __rdtsc();
        expect(!"not reached");
    }
    expect(caught == SIGSEGV);
    must(prctl(PR_SET_TSC, PR_TSC_ENABLE));
    expect(__rdtsc() > 0);
    fails(EINVAL, prctl(PR_SET_TSC, 9));
}

int main(void) {
    char name[16];
    must(prctl(PR_SET_NAME, "a name that is too long for it"));
    must(prctl(PR_GET_NAME, name));
    expect(strcmp(name, "a name that is ") == 0);
    int value = 0;
    must(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    must(prctl(PR_GET_PDEATHSIG, &value));
    expect(value == SIGUSR1);
    must(prctl(PR_SET_PDEATHSIG, 0));
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    must(prctl(PR_GET_CHILD_SUBREAPER, &value));
    expect(value == 1);
    must(prctl(PR_SET_TIMERSLACK, 12345));
    expect(prctl(PR_GET_TIMERSLACK) == 12345);
    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    expect(prctl(PR_GET_KEEPCAPS) == 0);
    must(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    expect(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
    must(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    say("bounding set has chown %d\n", prctl(PR_CAPBSET_READ, 0));
    say("secure bits %d\n", prctl(PR_GET_SECUREBITS));
    say("machine checks %d\n", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
    clock_instruction();
    fails(EINVAL, prctl(12345, 0, 0, 0, 0));
    fails(EFAULT, prctl(PR_GET_NAME, 16));
    // May be refused: the address space's shape, and another dispatcher of calls.
    expect(prctl(PR_SET_MM, PR_SET_MM_BRK, 4096, 0, 0) == -1);
    expect(prctl(PR_SET_MM, 99, 0, 0, 0) == -1);
    say("done\n");
}
