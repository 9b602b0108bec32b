//! Calls that shape the address space.
//!
//! The runtime has its own code for most of them, because replay makes them at recorded addresses and because the runtime's own
//! reservation must stay out of the program's reach. Calls that change neither what memory holds nor where it lies (locking,
//! flushing, NUMA placement) are answered from the log.

calls! {
    9 MMAP mmap(
        addr: addr, length: size, prot: flags(PROT), flags: flags(MAP), fd: fd, offset: hex,
    ) -> ptr: special, does(maps);
    10 MPROTECT mprotect(addr: addr, len: size, prot: flags(PROT)) -> int: special, does(protects);
    11 MUNMAP munmap(addr: addr, length: size) -> int: special, does(unmaps);
    12 BRK brk(addr: addr) -> ptr: special, does(breaks);
    25 MREMAP mremap(
        old_address: addr, old_size: size, new_size: size, flags: flags(MREMAP), new_address: addr,
    ) -> ptr: special, does(remaps);
    26 MSYNC msync(addr: addr, length: size, flags: flags(MSYNC)) -> int: emulate;
    // What lies before a page that is not mapped has been told by then.
    27 MINCORE mincore(addr: addr, length: size, vec: out(pages length) always) -> int: emulate, local;
    28 MADVISE madvise(addr: addr, length: size, advice: one_of(MADVISE)) -> int: special, does(advises);
    149 MLOCK mlock(addr: addr, len: size) -> int: emulate, does(locks);
    150 MUNLOCK munlock(addr: addr, len: size) -> int: emulate, does(unlocks);
    151 MLOCKALL mlockall(flags: flags(MLOCKALL)) -> int: emulate, does(locks all);
    152 MUNLOCKALL munlockall() -> int: emulate, does(unlocks all);
    // Kernels can be built without it; a changed local descriptor table could not be named by a state.
    154 MODIFY_LDT modify_ldt(func: int, ptr: in(bytecount), bytecount: size) -> int: refuse(ENOSYS), noted(LDT);
    // Deprecated, and since Linux 4.0 only imitated by the kernel, with mappings that the runtime would not know of.
    216 REMAP_FILE_PAGES remap_file_pages(
        addr: addr, size: size, prot: flags(PROT), pgoff: size, flags: flags(MAP),
    ) -> int: refuse(ENOSYS);
    237 MBIND mbind(
        addr: addr, len: size, mode: one_of(MPOL), nodemask: in(bits maxnode), maxnode: size, flags: hex,
    ) -> int: emulate;
    238 SET_MEMPOLICY set_mempolicy(mode: one_of(MPOL), nodemask: in(bits maxnode), maxnode: size) -> int: emulate, prompt;
    239 GET_MEMPOLICY get_mempolicy(
        mode: out(4), nodemask: out(bits maxnode), maxnode: size, addr: addr, flags: hex,
    ) -> int: emulate, asks;
    256 MIGRATE_PAGES migrate_pages(pid: pid, maxnode: size, old_nodes: in(bits maxnode), new_nodes: in(bits maxnode)) -> int: emulate;
    279 MOVE_PAGES move_pages(
        pid: pid, count: size, pages: in(count * 8), nodes: in(count * 4), status: out(count * 4) always, flags: hex,
    ) -> int: emulate;
    // Faults that another thread resolves can't be put in an order from inside the process.
    323 USERFAULTFD userfaultfd(flags: hex) -> fd: refuse(ENOSYS), noted(USERFAULTFD);
    325 MLOCK2 mlock2(addr: addr, len: size, flags: hex) -> int: emulate, does(locks by flags);
    // Protection keys are masked out of cpuid; these are the answers of a processor without them.
    329 PKEY_MPROTECT pkey_mprotect(addr: addr, len: size, prot: flags(PROT), pkey: int) -> int: refuse(EINVAL);
    330 PKEY_ALLOC pkey_alloc(flags: hex, access_rights: hex) -> int: refuse(ENOSPC);
    331 PKEY_FREE pkey_free(pkey: int) -> int: refuse(EINVAL);
    440 PROCESS_MADVISE process_madvise(
        pidfd: fd, iovec: in(vlen * 16), vlen: size, advice: one_of(MADVISE), flags: hex,
    ) -> int: refuse(ENOSYS);
    // Nobody but the process itself could read such memory, not even to save it in the trace.
    447 MEMFD_SECRET memfd_secret(flags: hex) -> fd: refuse(ENOSYS);
    448 PROCESS_MRELEASE process_mrelease(pidfd: fd, flags: hex) -> int: emulate;
    450 SET_MEMPOLICY_HOME_NODE set_mempolicy_home_node(addr: addr, len: size, home_node: size, flags: hex) -> int: emulate;
    453 MAP_SHADOW_STACK map_shadow_stack(addr: addr, size: size, flags: hex) -> ptr: refuse(ENOSYS);
    // Sealed memory could not be put back to an earlier state.
    462 MSEAL mseal(addr: addr, len: size, flags: hex) -> int: refuse(ENOSYS);
}
