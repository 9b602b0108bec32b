// docker_filter PROGRAM ARGS...: runs a program under a seccomp filter with the rules of Docker's default profile for x86-64, as a
// container without extra capabilities has them. Written from the profile's documentation; what the profile does not list is refused.
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000U
#endif

// Calls that are refused with EPERM: those that the profile leaves out, and those that it ties to capabilities a container lacks.
static const int refused[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_settime, SYS_create_module, SYS_delete_module, SYS_fanotify_init, SYS_finit_module,
    SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_get_kernel_syms, SYS_get_mempolicy, SYS_init_module, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_io_uring_setup, SYS_ioperm, SYS_iopl, SYS_kcmp, SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl,
    SYS_lookup_dcookie, SYS_mbind, SYS_migrate_pages, SYS_mount, SYS_mount_setattr, SYS_move_mount, SYS_move_pages, SYS_nfsservctl,
    SYS_open_by_handle_at, SYS_open_tree, SYS_perf_event_open, SYS_pidfd_getfd, SYS_pivot_root, SYS_query_module, SYS_quotactl,
    SYS_quotactl_fd, SYS_reboot, SYS_request_key, SYS_set_mempolicy, SYS_setdomainname, SYS_sethostname, SYS_setns, SYS_settimeofday,
    SYS_swapoff, SYS_swapon, SYS__sysctl, SYS_sysfs, SYS_syslog, SYS_umount2, SYS_unshare, SYS_uselib, SYS_userfaultfd, SYS_ustat,
    SYS_vhangup,
};

// `personality` is allowed with these words only.
static const unsigned personalities[] = {0, 0x0008, 0x20000, 0x20008, 0xffffffff};

#define CLONE_NAMESPACES 0x7e020000u
#define AF_VSOCK_NUMBER 40

static struct sock_filter program[256];
static int length;

static void add(struct sock_filter step) {
    expect(length < (int)(sizeof program / sizeof *program));
    program[length++] = step;
}

static void load(size_t offset) {
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void answer(unsigned value) {
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value));
}

int main(int argc, char **argv) {
    expect(argc > 1);
    const size_t nr = offsetof(struct seccomp_data, nr), argument = offsetof(struct seccomp_data, args);
    load(offsetof(struct seccomp_data, arch));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    load(nr);
    // New namespaces are for capable callers; of clone3 the filter cannot see the flags, so programs are told to use clone.
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
    load(argument);
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NAMESPACES, 0, 1));
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);
    const int words = sizeof personalities / sizeof *personalities;
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 0, words + 3));
    load(argument);
    for (int i = 0; i < words; i++) add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, personalities[i], words - i, 0));
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4));
    load(argument);
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_VSOCK_NUMBER, 0, 1));
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1));
        answer(SECCOMP_RET_ERRNO | EPERM);
    }
    answer(SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = (unsigned short)length, .filter = program};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
