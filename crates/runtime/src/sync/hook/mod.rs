//! Entry hooks: exported functions of libc are replaced by the runtime's own, at their first bytes (FACTS, "Entry hooks in libc").
//!
//! A library that calls its own functions calls the same entries, so that nothing escapes that goes through one; libraries loaded in front
//! of libc don't change that. It is done when ld.so has just mapped the last segment of the module, before any of its code ran, so that no
//! thread can be in the middle of what is replaced. What is replaced depends on the file alone: a replay does the same.
//!
//! Only glibc is known, by the names that its modules give themselves. A program without such a module (static, another libc) isn't hooked:
//! [`Counters::hooked`](reprise_abi::session::Counters) then stays 0. Modules built with `reprise cc` are known by a symbol of theirs.

pub mod entry;
pub mod fast;
pub mod left_out;
pub mod loads;
pub mod shim;
pub mod thread_local;

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::heap;
use crate::machine::guard::{self, Program};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, map, Region};
use crate::thread::in_force;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, Ordering::*};
use entry::{Hook, MAX_HOOKS};
use reprise_abi::hooks;
use reprise_abi::session::FLAG_EPOCHS;
use reprise_abi::session::{region_flags, FLAG_HOOKS};
use reprise_abi::syscalls::nr;
use reprise_code::elf;
use reprise_code::elf::{Exports, Module, Symbol};
use shim::{Function, ALLOCATION, ATOMIC, CXX, GLIBC};

const PROT_WRITE: u32 = 2;
/// Mappings of one module, at most.
const MAX_BEFORE: usize = 8;

/// Modules by name, and what is replaced in them. Before glibc 2.34 threads had a library of their own, which is loaded after libc.
const MODULES: [(&[u8], &[Function]); 5] = [
    // What is replaced in ld.so has no name that it exports: see [`thread_local`].
    (LOADER, &[]),
    (b"libc.so.6", GLIBC),
    (b"libpthread.so.0", GLIBC),
    (b"libstdc++.so.6", CXX),
    (b"libc++abi.so.1", CXX),
];

const LOADER: &[u8] = b"ld-linux-x86-64.so.2";

/// What a module that `reprise cc` built exports.
const COMPILED_BY_US: &[u8] = b"reprise_cc_atomics";

/// Address of `pthread_testcancel`.
static TESTCANCEL: AtomicU64 = AtomicU64::new(0);
/// Where a thread's cancellation word lies, from its thread pointer on. 0: not known.
static CANCEL_WORD: AtomicU64 = AtomicU64::new(0);
/// Where the headers of the modules are that libc consists of.
static LIBC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Address of `__errno_location`.
static ERRNO_LOCATION: AtomicU64 = AtomicU64::new(0);

/// The code of ld.so in this process: first byte and end. What other code loads is no module of the program's: an emulator maps the libc of the
/// program that it emulates, too.
static LOADER_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Is this address in the code of the process's ld.so?
fn is_in_loader(pc: u64) -> bool {
    (LOADER_CODE[0].load(Relaxed)..LOADER_CODE[1].load(Relaxed)).contains(&pc)
}

/// Is there a libc whose functions were found?
pub fn has_libc() -> bool {
    LIBC.iter().any(|at| at.load(Relaxed) != 0)
}

/// Does this code belong to libc, or to ld.so?
pub fn is_libc(code: &Region) -> bool {
    let known = LIBC.iter().map(|at| at.load(Relaxed)).filter(|at| *at != 0);
    let mut modules = known.filter_map(|at| Module::at(&Program, at));
    is_in_loader(code.start) || modules.any(|m| m.holds(&Program, code.start))
}

/// Where the program's `pthread_testcancel` is, and the cancellation word of the thread with this thread pointer.
pub fn cancellation(thread: u64) -> Option<(u64, u64)> {
    let word = CANCEL_WORD.load(Relaxed);
    let test = TESTCANCEL.load(Relaxed);
    (word != 0 && test != 0).then(|| (test, thread.wrapping_add(word)))
}

/// Address of the program's `__errno_location`, if it is known.
pub fn errno_location() -> Option<u64> {
    Some(ERRNO_LOCATION.load(Relaxed)).filter(|a| *a != 0)
}

/// Replaces what is to be replaced in the module that a call has just completed, which is returned.
pub fn after_call(t: &mut Block, c: &Call, result: i64) -> Option<Module> {
    let wanted = session().flags & FLAG_HOOKS != 0 && is_in_loader(t.slot().last_pc.load(Relaxed));
    let module = wanted.then(|| completed_by(c, result)).flatten()?;
    hook(&module);
    crate::sync::locked::module_completed(t, &module);
    Some(module)
}

/// The module that a call has just completed: it has mapped its dynamic table.
pub fn completed_by(c: &Call, result: i64) -> Option<Module> {
    let fits = c.nr == nr::MMAP
        && !sys::is_error(result)
        && c.args[2] as u32 & PROT_WRITE != 0
        && c.args[3] & (sys::MAP_FIXED | sys::MAP_ANONYMOUS) == sys::MAP_FIXED;
    let at = fits.then_some(result as u64)?;
    let module = around(&map().at(at)?)?;
    let (dynamic, _) = module.segment(&Program, elf::DYNAMIC)?;
    (at..at.saturating_add(c.args[1]))
        .contains(&dynamic)
        .then_some(module)
}

/// Replaces what is to be replaced in the modules that are there at the program's first instruction.
///
/// `before`: what is to be done first, when it is known where the program is.
pub fn start(t: &mut Block, before: impl FnOnce(&mut Block)) {
    if session().flags & FLAG_HOOKS == 0 {
        return;
    }
    // A program that begins by itself has no ld.so, and no modules but itself.
    if let Some(code) = map().at(session().entry) {
        LOADER_CODE[0].store(code.start, Relaxed);
        LOADER_CODE[1].store(code.end, Relaxed);
    }
    before(t);
    // A stub may need a page of its own, which is one more mapping.
    for r in memory::each() {
        if r.flags & region_flags::FILE != 0 {
            Module::at(&Program, r.start).and_then(|m| hook(&m));
        }
    }
}

/// The functions that are replaced in a module with these exports.
fn functions_of(exports: &Exports) -> Option<&'static [Function]> {
    let named = MODULES
        .iter()
        .find(|(name, _)| exports.is_module(&Program, name));
    match named {
        Some((_, functions)) => Some(functions),
        None => exports.find(&Program, COMPILED_BY_US).map(|_| ATOMIC),
    }
}

/// Lists are told apart by their first names: a constant's address may differ from one part of the image to another.
fn are_of_glibc(functions: &[Function]) -> bool {
    let first = |list: &[Function]| list.first().map(|f| f.name);
    first(functions) == first(GLIBC)
}

fn hook(module: &Module) -> Option<()> {
    let _code = crate::log::debugger::CodeAsRecorded::begin();
    let exports = module.exports(&Program)?;
    let functions = functions_of(&exports)?;
    if are_of_glibc(functions) {
        let free = LIBC.iter().find(|at| at.load(Relaxed) == 0);
        free.inspect(|at| at.store(module.headers_at(), Relaxed));
        thread_local::libc(&exports);
        with_engine!(E => E::finds_libc(&exports));
    }
    crate::races::watch::module(&exports, are_of_glibc(functions));
    let mut list = [Hook::default(); MAX_HOOKS];
    let mut n = 0;
    // An allocator is replaced as a whole or not at all.
    let addresses_matter = (in_force::orders_synchronisation()
        || in_force::has_private_views()
        || in_force::runs_one_at_a_time())
        && are_of_glibc(functions);
    let allocation = match addresses_matter && heap::prepare() {
        true => ALLOCATION,
        false => &[],
    };
    for f in functions.iter().chain(allocation) {
        let Some(s) = exports.find(&Program, f.name) else {
            continue;
        };
        if hooks::holds_function(session().unhooked, f.name) {
            left_out::add(s.address);
            continue;
        }
        if is_libcs_own(f.name) {
            continue;
        }
        // Several names may share an entry.
        if s.kind == elf::FUNC && n < MAX_HOOKS && !list[..n].iter().any(|h| h.at == s.address) {
            list[n] = Hook {
                at: s.address,
                size: s.size,
                shim: loads::of(f).unwrap_or(f.shim as *const () as u64),
                way: fast::way_of(f),
                original: f.original,
            };
            n += 1;
        }
    }
    if exports.is_module(&Program, LOADER) {
        for h in thread_local::hooks(&exports).into_iter().flatten() {
            list[n] = h;
            n += 1;
        }
    }
    let done = entry::replace(&list[..n]);
    session().counters.hooked.fetch_add(done, Relaxed);
    note_places(&exports);
    Some(())
}

/// In epochs a call that others see, or by which the program ends, has to be made at a gate, where the epoch can end before it. So libc's own function makes it; the instructions by which that takes its
/// lock have stubs, as the program's have.
fn is_libcs_own(function: &[u8]) -> bool {
    session().flags & FLAG_EPOCHS != 0 && function == b"pthread_kill"
}

/// The module that a mapping of data belongs to.
fn around(data: &Region) -> Option<Module> {
    memory::down_from(data)
        .take(MAX_BEFORE + 1)
        .filter(|r| r.flags & region_flags::FILE != 0)
        .filter_map(|r| Module::at(&Program, r.start))
        .find(|m| m.holds(&Program, data.start))
}

/// Remembers what shims need of the module.
fn note_places(exports: &Exports) {
    let find = |name: &[u8]| exports.find(&Program, name);
    let note = |cell: &AtomicU64, s: Option<Symbol>| {
        if let Some(s) = s {
            let _ = cell.compare_exchange(0, s.address, Relaxed, Relaxed);
        }
    };
    note(&TESTCANCEL, find(b"pthread_testcancel"));
    note(&ERRNO_LOCATION, find(b"__errno_location"));
    // For debuggers glibc says where it keeps the word (nptl_db): bits, number of elements, offset.
    if let Some(s) = find(b"_thread_db_pthread_cancelhandling") {
        if let Some([32, 1, offset]) = guard::read::<[u32; 3]>(s.address) {
            CANCEL_WORD.store(offset as u64, Relaxed);
        }
    }
}
