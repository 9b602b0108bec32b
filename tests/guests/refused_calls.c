// Calls that a recorder may refuse give an error that programs know how to live with.
#include "guest.h"
#include <linux/io_uring.h>

static void attempt(const char *name, long result) {
    // Natively these may work; a recorder may say ENOSYS, EPERM, EINVAL and the like. Anything else would surprise a program.
    expect(result >= 0 || errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == EFAULT || errno == EACCES || errno == EBADF || errno == ENOSPC);
    say("%s: result %ld, errno %d\n", name, result, result < 0 ? errno : 0);
    if (result > 2) close(result);
}

int main(void) {
    struct io_uring_params params = {0};
    attempt("io_uring_setup", syscall(SYS_io_uring_setup, 4, &params));
    unsigned long context = 0;
    attempt("io_setup", syscall(SYS_io_setup, 4, &context) == 0 ? 0 : -1);
    attempt("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
    attempt("clone3", syscall(SYS_clone3, NULL, 0));
    attempt("rseq", syscall(SYS_rseq, NULL, 0, 0, 0));
    attempt("membarrier", syscall(SYS_membarrier, 0, 0, 0) >= 0 ? 0 : -1);
    attempt("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
    attempt("bpf", syscall(SYS_bpf, 0, NULL, 0));
    attempt("pkey_alloc", syscall(SYS_pkey_alloc, 0, 0) >= 0 ? 0 : -1);
    attempt("remap_file_pages", syscall(SYS_remap_file_pages, NULL, 4096, 0, 0, 0));
    attempt("ptrace", syscall(SYS_ptrace, 0xffff, 0, 0, 0) >= 0 ? 0 : (errno = EPERM, -1));
    say("done\n");
}
