//! Code that comes when there are threads already: a library that one of them loads.
//!
//! Its memory is a view of the backing, like all that is mapped from then on. What the runtime writes into it (hooks of functions that synchronise, jumps
//! to stubs of locked instructions, traps in the place of cpuid) is written by the thread that maps the last piece of the module, in that turn, and committed with
//! it, before anybody can know an address in it. The stubs lie beside the code, in pages that become views as well: those, too, that were there before,
//! since there may have been room left in them.

use crate::code::patch;
use crate::dispatch::with_engine;
use crate::gate::cpuid;
use crate::memory::capture::Call;
use crate::memory::Region;
use crate::sync::{hook, locked};
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::session::region_flags;

/// How many hooks, jumps and traps were written into code.
fn written() -> u64 {
    let c = &session().counters;
    let all = [&c.hooked, &c.locked_sites, &c.locked_traps];
    all.iter().map(|n| n.load(Relaxed)).sum()
}

/// A call of this thread has mapped a file, in its turn: replaces what is to be replaced. Was anything written [beside](is_beside) the code?
pub fn mapped(t: &mut Block, c: &Call, result: i64) -> bool {
    let before = written();
    with_engine!(E => cpuid::after_call::<E>(t, c, result, [0; 2]));
    if let Some(module) = hook::after_call(t, c, result) {
        locked::module_of_processes(&module);
    }
    written() != before
}

/// Is it code that the runtime has put beside the program's?
pub fn is_beside(r: &Region) -> bool {
    const APART: u32 = region_flags::FILE | region_flags::SHARED | region_flags::VDSO;
    let is_stub = || patch::is_stub(r.start) || locked::is_stub(r.start);
    r.is_executable() && r.flags & APART == 0 && is_stub()
}
