// What has no place in a recording fails with an errno that programs know; natively some of it works.
#include "filters.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

static void attempt(const char *name, long result) {
    say("%s: %ld, errno %d\n", name, result, result < 0 ? errno : 0);
}

int main(void) {
    no_new_privileges();
    attempt("ptrace", ptrace(PTRACE_ATTACH, 1 << 22, NULL, NULL));
    static struct sock_filter code[BPF_MAXINSNS];
    for (int i = 0; i < BPF_MAXINSNS; i++) code[i] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    struct sock_fprog longest = {.len = BPF_MAXINSNS, .filter = code}, shortest = {.len = 1, .filter = code};
    attempt("long filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &longest));
    attempt("listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8, &shortest) < 0 ? -1 : 0);
    attempt("dispatch", prctl(59, 9, 0, 0, 0));
    attempt("memory layout", prctl(PR_SET_MM, 99, 0, 0, 0));
    attempt("write or execute", prctl(65, 1ul << 40, 0, 0, 0));
    attempt("foreign write", syscall(SYS_process_vm_writev, 1 << 22, NULL, 0, NULL, 0, 1));
    say("goes on\n");
}
