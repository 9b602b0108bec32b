// Seccomp filters, written as lists of instructions.
#ifndef FILTERS_H
#define FILTERS_H

#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARGUMENT(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (i))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
// When the number is `call`, the answer is `value`.
#define ON(call, value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), RETURN(value)
#define FILTER(name, ...)                                                                                              \
    struct sock_filter name##_code[] = {__VA_ARGS__};                                                                  \
    struct sock_fprog name = {.len = sizeof name##_code / sizeof *name##_code, .filter = name##_code}

GUEST_UNUSED static void no_new_privileges(void) {
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

#endif
