//! Whose code a mapping is. The modules of a process are what the kernel maps at an exec and what its dynamic linker maps afterwards. Whoever
//! else maps a file so that it can be run has a format of its own (a Lisp's heap), or reads the code as data: valgrind and other emulators
//! translate the instructions of a program that isn't this process's. In such mappings nothing may be replaced: what stands there is read.

use crate::code::functions::module_around;
use crate::machine::guard::Program;
use crate::machine::sys;
use crate::memory::{map, Region};
use crate::thread::{current, session};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use reprise_code::elf::Module;

/// `DT_SONAME`: a dynamic linker has a name; a program that links itself has none.
const SONAME: u64 = 14;

/// The code of the dynamic linker; empty where there is none.
static LINKER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The process was running before, and has no dynamic linker: only the module with its entry is its own.
static ALONE: AtomicBool = AtomicBool::new(false);

/// At the program's first instruction: finds its dynamic linker.
pub fn start(attached: bool, live: bool) {
    let s = session();
    let entry = match attached {
        false => s.entry,
        // Where it is now says nothing.
        true if live => {
            let base = auxiliary(AT_BASE).filter(|base| *base != 0);
            ALONE.store(base.is_none(), Relaxed);
            match base.and_then(|base| Module::at(&Program, base)?.entry(&Program)) {
                Some(entry) => entry,
                None => return,
            }
        }
        true => return,
    };
    let Some(code) = map().at(entry) else {
        return;
    };
    if module_around(&code).is_some_and(|m| m.dynamic(&Program, SONAME).is_some()) {
        LINKER[0].store(code.start, Relaxed);
        LINKER[1].store(code.end, Relaxed);
    }
}

/// Does the calling thread map, or protect, a module by the call that it is in? Only the dynamic linker's own calls do.
pub fn maps_module() -> bool {
    let pc = current().slot().last_pc.load(Relaxed);
    (LINKER[0].load(Relaxed)..LINKER[1].load(Relaxed)).contains(&pc)
}

/// Is this, which the program has at its first instruction, one of its modules?
pub fn had_module(code: &Region) -> bool {
    !ALONE.load(Relaxed)
        || auxiliary(AT_ENTRY).is_some_and(|entry| {
            module_around(code).is_some_and(|module| module.holds(&Program, entry))
        })
}

const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// A word of the vector that the kernel gave this process at its exec.
fn auxiliary(kind: u64) -> Option<u64> {
    const MOST: usize = 64;
    const AT_FDCWD: i64 = -100;
    let mut words = [[0u64; 2]; MOST];
    let path = c"/proc/self/auxv".as_ptr() as u64;
    let fd = sys::open_at(&[AT_FDCWD as u64, path, 0, 0]);
    if sys::is_error(fd) {
        return None;
    }
    let len = core::mem::size_of_val(&words) as u64;
    sys::read(fd as u64, words.as_mut_ptr() as u64, len);
    sys::close(fd as u64);
    words.iter().find(|w| w[0] == kind).map(|w| w[1])
}
