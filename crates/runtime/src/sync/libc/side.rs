//! What the runtime keeps of objects that have no room for it: by their address, for as long as the memory lives.
//!
//! An entry is never given back, so that what is in it depends only on the operations made on its address: when the program uses the memory
//! for another object of that kind, its numbers go on, in a replay as in the recording.

use crate::engine::order::Runs;
use crate::memory::map;
use crate::memory::scratch;
use crate::memory::space;
use crate::thread::panic;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::layout::PAGE;
use reprise_abi::order::SHARED_RUNS;

/// Most objects of a process that need an entry: spin locks, robust mutexes, objects that are initialised once.
const MAX_OBJECTS: usize = 1 << 16;

/// One object's.
#[repr(C)]
pub struct Side {
    address: AtomicU64,
    /// Free for the object's kind.
    pub note: AtomicU64,
    /// How many threads were chosen to initialise the object.
    pub chosen: AtomicU64,
    _pad: AtomicU64,
    /// Its run.
    pub runs: Runs,
}

static TABLE: AtomicU64 = AtomicU64::new(0);

fn table() -> &'static [Side; MAX_OBJECTS] {
    let mut at = TABLE.load(Acquire);
    if at == 0 {
        let Some(new) = scratch::table(core::mem::size_of::<[Side; MAX_OBJECTS]>() as u64) else {
            panic::give_up("no memory for the table of synchronisation objects");
        };
        at = match TABLE.compare_exchange(0, new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(other) => other,
        };
    }
    // SAFETY: mapped, zero at first, never unmapped; only atomics.
    unsafe { &*(at as *const [Side; MAX_OBJECTS]) }
}

/// Where the table lies, and its bytes.
pub fn place() -> (u64, u64) {
    let all = table();
    (all.as_ptr() as u64, core::mem::size_of_val(all) as u64)
}

/// The address of the object whose run lies at `run`, if the run is kept here: where that is, depends on who came first.
pub fn object_of(run: u64) -> Option<u64> {
    let table = TABLE.load(Relaxed);
    let inside = run.wrapping_sub(table) < core::mem::size_of::<[Side; MAX_OBJECTS]>() as u64;
    // SAFETY: an entry of the table, found by its run.
    let entry = || unsafe { &*((run - core::mem::offset_of!(Side, runs) as u64) as *const Side) };
    (table != 0 && inside).then(|| entry().address.load(Relaxed))
}

/// The run of the object at this address, which may lie in memory that processes share: then they have it in common.
pub fn runs_of(address: u64) -> &'static Runs {
    const _: () = assert!(core::mem::size_of::<Runs>() == core::mem::size_of::<[AtomicU64; 2]>());
    if crate::thread::in_force::orders_synchronisation() && is_shared(address) {
        let all = &crate::thread::rings::head().shared_runs;
        let own = &all[(address % PAGE) as usize / (PAGE as usize / SHARED_RUNS)];
        // SAFETY: a run is two words, all zero at first.
        return unsafe { &*(own.as_ptr() as *const Runs) };
    }
    &side(address).runs
}

fn is_shared(address: u64) -> bool {
    if !map().may_have_shared(address) {
        return false;
    }
    let _lock = space::lock();
    map().has_shared(address, address + 1)
}

/// The entry of the object at this address.
pub fn side(address: u64) -> &'static Side {
    find(table(), address)
        .unwrap_or_else(|| panic::give_up("more than 65,536 objects of synchronisation"))
}

/// Its entry, made if there is none.
fn find(table: &[Side], address: u64) -> Option<&Side> {
    let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % table.len();
    let (before, after) = table.split_at(first);
    after.iter().chain(before).find(|e| {
        let known = e.address.load(Acquire);
        known == address
            || known == 0
                && match e.address.compare_exchange(0, address, AcqRel, Acquire) {
                    Ok(_) => true,
                    Err(other) => other == address,
                }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_address_has_one_entry() {
        let table: Vec<Side> = (0..64).map(|_| unsafe { core::mem::zeroed() }).collect();
        let at = |address: u64| find(&table, address).map(|e| e as *const Side);
        let all: Vec<_> = (1..=64).map(|i| at(i * 8)).collect();
        assert!(all.iter().all(Option::is_some));
        for (i, e) in all.iter().enumerate() {
            assert_eq!(at(8 * (i as u64 + 1)), *e);
            assert!(!all[..i].contains(e));
        }
        assert_eq!(at(8 * 65), None);
    }
}
