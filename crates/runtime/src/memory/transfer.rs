//! Bytes to and from the memory of another process: a copy of this one (process_vm_readv(2), process_vm_writev(2)), whatever their protection is
//! (/proc/PID/mem, proc(5)).

use crate::machine::{guard, present, proc_name, sys};
use crate::memory::scratch;
use core::cell::UnsafeCell;
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls::nr;

/// Copies `len` bytes at `there` in that process to `here`. `None`: they can't be read.
pub fn get(pid: u32, here: u64, there: u64, len: u64) -> Option<()> {
    transfer(nr::PROCESS_VM_READV, pid, here, there, len)
}

/// Copies `len` bytes at `here` to `there` in that process. `None`: they can't be written.
pub fn put(pid: u32, here: u64, there: u64, len: u64) -> Option<()> {
    transfer(nr::PROCESS_VM_WRITEV, pid, here, there, len)
}

fn transfer(call: u64, pid: u32, here: u64, there: u64, len: u64) -> Option<()> {
    let (local, remote) = ([here, len], [there, len]);
    let args = [
        pid as u64,
        local.as_ptr() as u64,
        1,
        remote.as_ptr() as u64,
        1,
        0,
    ];
    (sys::call(call, &args) == len as i64).then_some(())
}

/// Takes over the page at this address from that process, whatever its protection. `None`: it can't be.
pub fn take_over(pid: u32, page: u64) -> Option<()> {
    let content = UnsafeCell::new([0u8; PAGE as usize]);
    let here = content.get() as u64;
    Unprotected::of(Some(pid))?.get(here, page, PAGE)?;
    let own = Unprotected::open(None, O_RDWR)?;
    (sys::call(nr::PWRITE64, &[own.0, here, PAGE, page]) == PAGE as i64).then_some(())
}

/// Takes over from that process, a copy of this one, what the runtime keeps of the program's memory ([`scratch::tables`]). (Of these no set is kept of what was written, by which
/// it could be told what the program has done before another copy was made.) All threads stand. False: it can't be.
pub fn takes_over_tables(pid: u32) -> bool {
    scratch::tables().all(|(at, len)| {
        let mut taken = true;
        let mut takes = |page| taken = taken && takes_over_if_other(pid, page);
        let known = present::each_written(at, at + len, &mut takes)
            && present::each_of_one(pid, at, at + len, &mut takes);
        known && taken
    })
}

fn takes_over_if_other(pid: u32, page: u64) -> bool {
    let theirs = UnsafeCell::new([0u64; (PAGE / 8) as usize]);
    let known = get(pid, theirs.get() as u64, page, PAGE).is_some();
    let is_same = || guard::read(page) == Some(theirs.into_inner());
    known && (is_same() || take_over(pid, page).is_some())
}

const O_RDONLY: u64 = 0;
const O_RDWR: u64 = 2;

/// The memory of a process, whatever its protection.
pub struct Unprotected(u64);

impl Unprotected {
    /// Of this process, or of that with this id.
    pub fn of(pid: Option<u32>) -> Option<Unprotected> {
        Unprotected::open(pid, O_RDONLY)
    }

    fn open(pid: Option<u32>, how: u64) -> Option<Unprotected> {
        const O_CLOEXEC: u64 = 0o2000000;
        let name = proc_name::ProcName::of(pid, b"mem");
        let fd = sys::open_at(&[u64::MAX, name.address(), O_CLOEXEC | how]);
        u64::try_from(fd).ok().map(Unprotected)
    }

    /// Copies `len` bytes at `there` to `here`.
    pub fn get(&self, here: u64, there: u64, len: u64) -> Option<()> {
        (sys::call(nr::PREAD64, &[self.0, here, len, there]) == len as i64).then_some(())
    }
}

impl Drop for Unprotected {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}
