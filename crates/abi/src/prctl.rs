//! The options of prctl(2), what its second argument is for each; and the codes of arch_prctl(2).

use crate::spec::SubCall;
use crate::syscalls::{class, commands, find, pointee, printed, returns, size, sorted};

commands! {
    /// All options that mean something to some kernel for x86-64, and ours.
    pub const ENTRIES(option, arg2, arg3, arg4, arg5) {
        1 PR_SET_PDEATHSIG(signal) -> int: emulate, prompt;
        2 PR_GET_PDEATHSIG(out(4)) -> int: emulate, prompt, asks;
        3 PR_GET_DUMPABLE(int) -> int: emulate, prompt, asks;
        4 PR_SET_DUMPABLE(int) -> int: emulate, prompt, hides;
        5 PR_GET_UNALIGN(out(4)) -> int: emulate, prompt;
        6 PR_SET_UNALIGN(int) -> int: emulate, prompt;
        7 PR_GET_KEEPCAPS(int) -> int: emulate, prompt, asks;
        8 PR_SET_KEEPCAPS(int) -> int: emulate, prompt;
        9 PR_GET_FPEMU(out(4)) -> int: emulate, prompt;
        10 PR_SET_FPEMU(int) -> int: emulate, prompt;
        11 PR_GET_FPEXC(out(4)) -> int: emulate, prompt;
        12 PR_SET_FPEXC(int) -> int: emulate, prompt;
        13 PR_GET_TIMING(int) -> int: emulate, prompt;
        14 PR_SET_TIMING(int) -> int: emulate, prompt;
        15 PR_SET_NAME(path) -> int: emulate, prompt;
        16 PR_GET_NAME(out(16)) -> int: emulate, prompt, asks;
        19 PR_GET_ENDIAN(out(4)) -> int: emulate, prompt;
        20 PR_SET_ENDIAN(int) -> int: emulate, prompt;
        21 PR_GET_SECCOMP(int) -> int: emulate, prompt, asks;
        // As seccomp(2).
        22 PR_SET_SECCOMP(int) -> int: special;
        23 PR_CAPBSET_READ(int) -> int: emulate, prompt, asks;
        24 PR_CAPBSET_DROP(int) -> int: emulate, prompt;
        // rdtsc traps into the runtime, whatever the program wishes: it only sees its own setting.
        25 PR_GET_TSC(out(4)) -> int: special, asks;
        26 PR_SET_TSC(int) -> int: special;
        27 PR_GET_SECUREBITS(int) -> int: emulate, prompt, asks;
        28 PR_SET_SECUREBITS(hex) -> int: emulate, prompt;
        29 PR_SET_TIMERSLACK(uint) -> int: emulate, prompt;
        30 PR_GET_TIMERSLACK(int) -> int: emulate, prompt, asks;
        31 PR_TASK_PERF_EVENTS_DISABLE(int) -> int: emulate, prompt;
        32 PR_TASK_PERF_EVENTS_ENABLE(int) -> int: emulate, prompt;
        33 PR_MCE_KILL(int) -> int: emulate, prompt;
        34 PR_MCE_KILL_GET(int) -> int: emulate, prompt, asks;
        // It moves the kernel's idea of brk, stack and auxv, which the runtime keeps.
        35 PR_SET_MM(int) -> int: refuse(EPERM);
        36 PR_SET_CHILD_SUBREAPER(int) -> int: emulate, prompt;
        37 PR_GET_CHILD_SUBREAPER(out(4)) -> int: emulate, prompt, asks;
        38 PR_SET_NO_NEW_PRIVS(int) -> int: emulate, prompt;
        39 PR_GET_NO_NEW_PRIVS(int) -> int: emulate, prompt, asks;
        // The kernel's own word is in the runtime's slot, not where the program put it.
        40 PR_GET_TID_ADDRESS(out(8)) -> int: special, asks;
        41 PR_SET_THP_DISABLE(int) -> int: emulate, prompt;
        42 PR_GET_THP_DISABLE(int) -> int: emulate, prompt, asks;
        43 PR_MPX_ENABLE_MANAGEMENT(int) -> int: refuse(EINVAL);
        44 PR_MPX_DISABLE_MANAGEMENT(int) -> int: refuse(EINVAL);
        45 PR_SET_FP_MODE(int) -> int: refuse(EINVAL);
        46 PR_GET_FP_MODE(int) -> int: refuse(EINVAL);
        47 PR_CAP_AMBIENT(int) -> int: emulate, prompt;
        50 PR_SVE_SET_VL(int) -> int: refuse(EINVAL);
        51 PR_SVE_GET_VL(int) -> int: refuse(EINVAL);
        52 PR_GET_SPECULATION_CTRL(int) -> int: emulate, prompt, asks;
        53 PR_SET_SPECULATION_CTRL(int) -> int: emulate, prompt;
        54 PR_PAC_RESET_KEYS(int) -> int: refuse(EINVAL);
        55 PR_SET_TAGGED_ADDR_CTRL(int) -> int: refuse(EINVAL);
        56 PR_GET_TAGGED_ADDR_CTRL(int) -> int: refuse(EINVAL);
        57 PR_SET_IO_FLUSHER(int) -> int: emulate, prompt;
        58 PR_GET_IO_FLUSHER(int) -> int: emulate, prompt;
        // The runtime lives by it.
        59 PR_SET_SYSCALL_USER_DISPATCH(int) -> int: refuse(EINVAL);
        60 PR_PAC_SET_ENABLED_KEYS(int) -> int: refuse(EINVAL);
        61 PR_PAC_GET_ENABLED_KEYS(int) -> int: refuse(EINVAL);
        // As a kernel without core scheduling; its answer would come through the fifth argument.
        62 PR_SCHED_CORE(int) -> int: refuse(EINVAL);
        63 PR_SME_SET_VL(int) -> int: refuse(EINVAL);
        64 PR_SME_GET_VL(int) -> int: refuse(EINVAL);
        // With it the runtime could rewrite no system call site any more.
        65 PR_SET_MDWE(hex) -> int: refuse(EINVAL);
        66 PR_GET_MDWE(int) -> int: refuse(EINVAL);
        67 PR_SET_MEMORY_MERGE(int) -> int: emulate, prompt;
        68 PR_GET_MEMORY_MERGE(int) -> int: emulate, prompt;
        69 PR_RISCV_V_SET_CONTROL(int) -> int: refuse(EINVAL);
        70 PR_RISCV_V_GET_CONTROL(int) -> int: refuse(EINVAL);
        71 PR_RISCV_SET_ICACHE_FLUSH_CTX(int) -> int: refuse(EINVAL);
        72 PR_PPC_GET_DEXCR(int) -> int: refuse(EINVAL);
        73 PR_PPC_SET_DEXCR(int) -> int: refuse(EINVAL);
        74 PR_GET_SHADOW_STACK_STATUS(int) -> int: refuse(EINVAL);
        75 PR_SET_SHADOW_STACK_STATUS(int) -> int: refuse(EINVAL);
        76 PR_LOCK_SHADOW_STACK_STATUS(int) -> int: refuse(EINVAL);
        77 PR_TIMER_CREATE_RESTORE_IDS(int) -> int: emulate, prompt;
        78 PR_FUTEX_HASH(int) -> int: refuse(EINVAL);
        79 PR_RSEQ_SLICE_EXTENSION(int) -> int: refuse(EINVAL);
        // The auxiliary vector that the program sees is ours.
        0x41555856 PR_GET_AUXV(out(arg3) wrote(result)) -> int: special;
        // By which a program names stretches of its run (include/reprise.h). No kernel knows them, so that they fail.
        0x52505245 REPRISE_STRETCH_ENDS(int) -> int: emulate, prompt;
        0x52505253 REPRISE_STRETCH_BEGINS(path) -> int: emulate, prompt;
        // By which it ends its recording.
        0x52505354 REPRISE_STOPS(int) -> int: emulate, prompt;
        0x53564d41 PR_SET_VMA(int) -> int: emulate, prompt;
        0x59616d61 PR_SET_PTRACER(int) -> int: emulate, prompt;
    }
}

commands! {
    /// The codes of arch_prctl(2); the runtime has its own code for the call.
    pub const ARCH_ENTRIES(code, addr) {
        0x1001 ARCH_SET_GS(addr) -> int: special;
        0x1002 ARCH_SET_FS(addr) -> int: special;
        0x1003 ARCH_GET_FS(out(8)) -> int: special;
        0x1004 ARCH_GET_GS(out(8)) -> int: special;
        0x1011 ARCH_GET_CPUID(int) -> int: special;
        0x1012 ARCH_SET_CPUID(int) -> int: special;
        // AMX is masked out of cpuid.
        0x1021 ARCH_GET_XCOMP_SUPP(out(8)) -> int: refuse(EINVAL);
        0x1022 ARCH_GET_XCOMP_PERM(out(8)) -> int: refuse(EINVAL);
        0x1023 ARCH_REQ_XCOMP_PERM(int) -> int: refuse(EINVAL);
        0x1024 ARCH_GET_XCOMP_GUEST_PERM(out(8)) -> int: refuse(EINVAL);
        0x1025 ARCH_REQ_XCOMP_GUEST_PERM(int) -> int: refuse(EINVAL);
        0x2001 ARCH_MAP_VDSO_X32(addr) -> int: refuse(EINVAL);
        0x2002 ARCH_MAP_VDSO_32(addr) -> int: refuse(EINVAL);
        0x2003 ARCH_MAP_VDSO_64(addr) -> int: refuse(EINVAL);
        0x4001 ARCH_GET_UNTAG_MASK(out(8)) -> int: refuse(EINVAL);
        0x4002 ARCH_ENABLE_TAGGED_ADDR(int) -> int: refuse(EINVAL);
        0x4003 ARCH_GET_MAX_TAG_BITS(out(8)) -> int: refuse(EINVAL);
        0x4004 ARCH_FORCE_TAGGED_SVA(int) -> int: refuse(EINVAL);
        // Shadow stacks would hold return addresses of the runtime's stubs.
        0x5001 ARCH_SHSTK_ENABLE(int) -> int: refuse(EINVAL);
        0x5002 ARCH_SHSTK_DISABLE(int) -> int: refuse(EINVAL);
        0x5003 ARCH_SHSTK_LOCK(int) -> int: refuse(EINVAL);
        0x5004 ARCH_SHSTK_UNLOCK(int) -> int: refuse(EINVAL);
        0x5005 ARCH_SHSTK_STATUS(out(8)) -> int: refuse(EINVAL);
    }
}

static BY_NUMBER: [u16; ENTRIES.len()] = sorted(ENTRIES);
static ARCH_BY_NUMBER: [u16; ARCH_ENTRIES.len()] = sorted(ARCH_ENTRIES);

/// The option of prctl with this number (the kernel looks at its lower 32 bits only).
pub fn lookup(option: u64) -> Option<&'static SubCall> {
    find(ENTRIES, &BY_NUMBER, option as u32 as u64)
}

/// The code of arch_prctl with this number.
pub fn arch_lookup(code: u64) -> Option<&'static SubCall> {
    find(ARCH_ENTRIES, &ARCH_BY_NUMBER, code as u32 as u64)
}
