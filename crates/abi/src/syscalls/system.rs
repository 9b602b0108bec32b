//! Calls on the machine as a whole: its name, modules, quotas, security; and kernel services that have a ring of their own.

commands! {
    /// What `rule_attr` is for each rule type of landlock_add_rule(2).
    const LANDLOCK_RULE(ruleset_fd, rule_type, rule_attr, flags) {
        1 LANDLOCK_RULE_PATH_BENEATH(in(12)) -> int: emulate;
        2 LANDLOCK_RULE_NET_PORT(in(16)) -> int: emulate;
    }
}

calls! {
    63 UNAME uname(buf: out(390)) -> int: emulate, prompt, local;
    99 SYSINFO sysinfo(info: out(112)) -> int: emulate, prompt, local, does(tells Machine);
    // Reading the kernel's log waits for its next line.
    103 SYSLOG syslog(type: int, bufp: out(len) wrote(result), len: int) -> int: emulate, waits, restarts;
    153 VHANGUP vhangup() -> int: emulate;
    156 _SYSCTL _sysctl(args: addr) -> int: refuse(ENOSYS);
    163 ACCT acct(filename: path) -> int: emulate;
    167 SWAPON swapon(path: path, swapflags: hex) -> int: emulate;
    168 SWAPOFF swapoff(path: path) -> int: emulate;
    169 REBOOT reboot(magic: hex, magic2: hex, op: hex, arg: addr) -> int: emulate;
    170 SETHOSTNAME sethostname(name: in(len), len: size) -> int: emulate, prompt;
    171 SETDOMAINNAME setdomainname(name: in(len), len: size) -> int: emulate, prompt;
    // With direct access to devices there would be results that nobody records.
    172 IOPL iopl(level: int) -> int: refuse(EPERM);
    173 IOPERM ioperm(from: size, num: size, turn_on: int) -> int: refuse(EPERM);
    174 CREATE_MODULE create_module() -> int: refuse(ENOSYS);
    175 INIT_MODULE init_module(module_image: in(len), len: size, param_values: path) -> int: emulate;
    176 DELETE_MODULE delete_module(name: path, flags: flags(OPEN)) -> int: emulate;
    177 GET_KERNEL_SYMS get_kernel_syms() -> int: refuse(ENOSYS);
    178 QUERY_MODULE query_module() -> int: refuse(ENOSYS);
    179 QUOTACTL quotactl(op: hex, special: path, id: int, addr: unknown) -> int: emulate;
    180 NFSSERVCTL nfsservctl() -> int: refuse(ENOSYS);
    181 GETPMSG getpmsg() -> int: refuse(ENOSYS);
    182 PUTPMSG putpmsg() -> int: refuse(ENOSYS);
    183 AFS_SYSCALL afs_syscall() -> int: refuse(ENOSYS);
    184 TUXCALL tuxcall() -> int: refuse(ENOSYS);
    185 SECURITY security() -> int: refuse(ENOSYS);
    // Requests that complete by themselves, into the program's memory, at moments that nothing names.
    206 IO_SETUP io_setup(nr_events: uint, ctx_idp: out(8)) -> int: refuse(ENOSYS), noted(AIO);
    207 IO_DESTROY io_destroy(ctx_id: hex) -> int: refuse(ENOSYS);
    208 IO_GETEVENTS io_getevents(
        ctx_id: hex, min_nr: long, nr: long, events: out(nr * 32) wrote(result * 32), timeout: in(16),
    ) -> int: refuse(ENOSYS);
    209 IO_SUBMIT io_submit(ctx_id: hex, nr: long, iocbpp: in(nr * 8)) -> int: refuse(ENOSYS);
    210 IO_CANCEL io_cancel(ctx_id: hex, iocb: in(64), result: out(32)) -> int: refuse(ENOSYS);
    236 VSERVER vserver() -> int: refuse(ENOSYS);
    246 KEXEC_LOAD kexec_load(entry: hex, nr_segments: size, segments: in(nr_segments * 32), flags: hex) -> int: refuse(ENOSYS);
    // Its ring is mapped and filled by the kernel.
    298 PERF_EVENT_OPEN perf_event_open(attr: addr, pid: pid, cpu: int, group_fd: fd, flags: hex) -> fd: refuse(EACCES), noted(PERF);
    313 FINIT_MODULE finit_module(fd: fd, param_values: path, flags: hex) -> int: emulate;
    318 GETRANDOM getrandom(buf: out(buflen) wrote(result), buflen: size, flags: flags(GETRANDOM)) -> int: emulate, restarts, local,
        does(tells Random);
    319 MEMFD_CREATE memfd_create(name: path, flags: flags(MEMFD)) -> fd: emulate, prompt, does(opens memory);
    320 KEXEC_FILE_LOAD kexec_file_load(
        kernel_fd: fd, initrd_fd: fd, cmdline_len: size, cmdline: in(cmdline_len), flags: hex,
    ) -> int: refuse(ENOSYS);
    // What an ordinary user gets; maps and rings of BPF can be mapped and change by themselves.
    321 BPF bpf(cmd: int, attr: addr, size: size) -> int: refuse(EPERM);
    333 IO_PGETEVENTS io_pgetevents(
        ctx_id: hex, min_nr: long, nr: long, events: out(nr * 32) wrote(result * 32), timeout: in(16), usig: in(16),
    ) -> int: refuse(ENOSYS);
    // The kernel's own trampolines make these two; a program never does.
    335 URETPROBE uretprobe() -> int: refuse(ENOSYS);
    336 UPROBE uprobe() -> int: refuse(ENOSYS);
    425 IO_URING_SETUP io_uring_setup(entries: uint, params: inout(120)) -> fd: refuse(ENOSYS), noted(IO_URING);
    426 IO_URING_ENTER io_uring_enter(
        fd: fd, to_submit: uint, min_complete: uint, flags: hex, arg: addr, argsz: uint,
    ) -> int: refuse(ENOSYS);
    427 IO_URING_REGISTER io_uring_register(fd: fd, opcode: uint, arg: addr, nr_args: uint) -> int: refuse(ENOSYS);
    443 QUOTACTL_FD quotactl_fd(fd: fd, op: hex, id: int, addr: unknown) -> int: emulate;
    444 LANDLOCK_CREATE_RULESET landlock_create_ruleset(attr: in(size), size: size, flags: hex) -> fd: emulate, prompt, does(opens object);
    445 LANDLOCK_ADD_RULE landlock_add_rule(
        ruleset_fd: fd, rule_type: int, rule_attr: command(rule_type, LANDLOCK_RULE), flags: hex,
    ) -> int: emulate;
    446 LANDLOCK_RESTRICT_SELF landlock_restrict_self(ruleset_fd: fd, flags: hex) -> int: emulate;
    // A buffer that is too small is told the length that is needed, and the call fails.
    459 LSM_GET_SELF_ATTR lsm_get_self_attr(attr: int, ctx: out([size]) always, size: inout(4) always, flags: hex) -> int: emulate, prompt;
    460 LSM_SET_SELF_ATTR lsm_set_self_attr(attr: int, ctx: in(size), size: uint, flags: hex) -> int: emulate;
    461 LSM_LIST_MODULES lsm_list_modules(ids: out([size]), size: inout(4) always, flags: hex) -> int: emulate, prompt;
}
