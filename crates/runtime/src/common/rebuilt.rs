//! A replay with a rebuilt program (`replay --with`): the same events, by other code, whose variables may lie elsewhere.
//!
//! **What must be equal**: the calls of each thread, in their order, with their numbers, and the bytes that they hand to the kernel; the operations on
//! objects, in their order, all of them, on the same objects. The list of a replay before this one says which these are ([`crate::engines::order::listing`]).
//!
//! **What may move** are addresses, since code, variables and frames lie where the compiler puts them:
//!
//! - an object, or an argument that is an address, in the program's own image stands for one in the recorded image, always for the same one, and no
//!   other stands for that ([`PAIRS`]);
//! - in memory of malloc(3) it is the same address: what the program allocates is to be the same;
//! - in any other memory, stacks above all, it is one in the same mapping;
//! - an argument by which the kernel reads or writes memory stands for that memory: its bytes are compared, and what a call wrote goes where
//!   the program wants it now. In structures that may hold addresses, words that are addresses in the program or in a stack count as such.
//!
//! Registers and hashes of memory are not compared. A place in mid-code that is named by them can't be found, and is refused.

use crate::heap;
use crate::machine::guard;
use crate::machine::hash;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::map;
use crate::memory::space;
use crate::sync::locked::learned::is_behind_a_call;
use crate::thread::{session, Block};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use reprise_abi::rebuilt::{Moved, Rebuilt, MAX_MOVED, PRINT, REBUILT_BASE};
use reprise_abi::session::FLAG_REBUILT;
use reprise_abi::spec::{Mem, Print, Size};
use reprise_abi::syscalls::{self, nr, used};

/// Is the program of this replay a rebuilt one?
#[inline(always)]
pub fn on() -> bool {
    session().flags & FLAG_REBUILT != 0
}

fn head() -> &'static Rebuilt {
    // SAFETY: mapped by the plan of such a replay, never changed.
    unsafe { &*(REBUILT_BASE as *const Rebuilt) }
}

fn moved() -> &'static [Moved] {
    let len = (head().len as usize).min(MAX_MOVED);
    // SAFETY: they follow the head.
    unsafe { core::slice::from_raw_parts((head() as *const Rebuilt).add(1) as *const Moved, len) }
}

fn holds(range: [u64; 2], address: u64) -> bool {
    (range[0]..range[1]).contains(&address)
}

/// The address that a variable of the program had in the recording, by its name, or else by its place in its section. An address that is in no
/// variable is told as it is.
///
/// Only for what has to be known before the list tells: whether the thread is the one that initialises this object.
pub fn recorded_variable(address: u64) -> u64 {
    if !holds(head().is, address) {
        return address;
    }
    let list = moved();
    let i = list.partition_point(|m| m.start <= address);
    let found = i.checked_sub(1).and_then(|i| list.get(i));
    let found = found.filter(|m| address < m.end);
    found.map_or(address, |m| m.was + (address - m.start))
}

/// Most objects in the program's image.
const MAX_PAIRS: usize = 1 << 16;
/// Which place in the rebuilt image stands for which one in the recorded image, found by the first, and by the second: the distances from the
/// images' beginnings, plus 1.
static PAIRS: [[AtomicU64; MAX_PAIRS]; 2] = [const { [const { AtomicU64::new(0) }; MAX_PAIRS] }; 2];

/// From now on the two belong together, unless one of them belongs to another one already.
fn pair(was: u64, is: u64) -> bool {
    let (is, was) = (is - head().is[0] + 1, was - head().was[0] + 1);
    if is >> 32 != 0 || was >> 32 != 0 {
        return false;
    }
    let new = is << 32 | was;
    let [by_is, by_was] = &PAIRS;
    enter(by_is, is, new, |p| p >> 32) && enter(by_was, was, new, |p| p & 0xffff_ffff)
}

fn enter(table: &[AtomicU64; MAX_PAIRS], key: u64, new: u64, key_of: impl Fn(u64) -> u64) -> bool {
    let first = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    for i in 0..MAX_PAIRS {
        let place = &table[(first as usize + i) % MAX_PAIRS];
        let known = match place.compare_exchange(0, new, SeqCst, SeqCst) {
            Ok(_) => new,
            Err(known) => known,
        };
        if key_of(known) == key {
            return known == new;
        }
    }
    crate::thread::panic::give_up(
        "more than 65,536 objects of synchronisation in the program's variables",
    )
}

/// Does what lies at `is` stand for the object that lay at `was`?
pub fn same_object(was: u64, is: u64) -> bool {
    let h = head();
    let images = (holds(h.was, was), holds(h.is, is));
    match images {
        (true, true) => pair(was, is),
        (false, false) => was == is || !heap::has(is) && same_mapping(was, is),
        _ => false,
    }
}

fn same_mapping(a: u64, b: u64) -> bool {
    let _lock = space::lock();
    let found = map().at(b);
    found.is_some_and(|r| (r.start..r.end).contains(&a))
}

/// Was this address in the recorded program's file? Its code and its data are not there any more.
pub fn was_program(address: u64) -> bool {
    on() && holds(head().was, address)
}

/// Are these places in code the same, as far as that can be said?
pub fn same_code(was: u64, is: u64) -> bool {
    was == is || on() && holds(head().was, was) && holds(head().is, is)
}

/// Where a thread that is at `pc` is in the program's code: there, or else where that called the function in which it is; 0: nowhere.
pub fn caller(t: &Block, pc: u64) -> u64 {
    const STACK: u64 = 16 << 10;
    if holds(head().is, pc) {
        return pc;
    }
    let words = (t.program_sp..t.program_sp.saturating_add(STACK)).step_by(8);
    let mut on_stack = words.map_while(guard::read::<u64>);
    let found = on_stack.find(|w| holds(head().is, *w) && is_behind_a_call(*w));
    found.map_or(0, |w| w - 1)
}

/// The code of the program, in the place of the recorded one's.
pub fn code() -> Option<crate::memory::Region> {
    const PROT_EXEC: u32 = 4;
    let found = |r: &&crate::memory::Region| holds(head().is, r.start) && r.prot & PROT_EXEC != 0;
    map().regions().iter().find(found).copied()
}

/// Before locked instructions are replaced in the code at `site`, as recorded: the rebuilt program's own come first. True: the code was the recorded
/// program's.
pub fn replaces(site: u64, annex: u64, len: u64) -> bool {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !on() {
        return false;
    }
    let was = was_program(site);
    if !DONE.swap(true, Relaxed) {
        if let Some(code) = code() {
            crate::sync::locked::replay_rebuilt(&code, was.then_some((annex, len)));
        }
    }
    was
}

/// Are these the arguments of the recorded call, in this program?
pub fn same_arguments(c: &Call, was: &[u64; 6]) -> bool {
    if !on() {
        return false;
    }
    let (was, now) = match syscalls::lookup(c.nr) {
        Some(d) => (d.canonical(was), d.canonical(&c.args)),
        None => (*was, c.args),
    };
    let h = head();
    if c.nr == nr::MPROTECT && holds(h.is, now[0]) && holds(h.was, was[0]) {
        // What the dynamic linker has filled in: how much that is depends on the program.
        return now[2] == was[2];
    }
    let used = used(c.nr, &now);
    (0..c.nargs).all(|i| {
        let (was, now) = (was[i], now[i]);
        let followed = c.mem[i] != Mem::None;
        let moves = || followed || is_address(c.nr, i) && same_object(was, now);
        used & 1 << i == 0 || now == was || now != 0 && was != 0 && moves()
    })
}

/// Is this argument an address that the kernel doesn't follow, or not as memory that is read or written?
fn is_address(number: u64, i: usize) -> bool {
    const THREAD_POINTER: [(u64, usize); 2] = [(nr::CLONE, 4), (nr::ARCH_PRCTL, 1)];
    let print = syscalls::lookup(number).and_then(|d| d.args.get(i));
    print.is_some_and(|a| a.print == Print::Ptr) || THREAD_POINTER.contains(&(number, i))
}

/// May the inputs of a call hold addresses?
pub fn holds_addresses(c: &Call) -> bool {
    c.mem[..c.nargs].iter().any(|mem| match mem {
        Mem::In(size) => !matches!(size, Size::Arg(_)),
        Mem::InOut { .. } | Mem::InOutAlways(_) => true,
        _ => false,
    })
}

/// Hash of the inputs, in which an address in the program, or in a stack, counts as that.
pub fn hash_of_inputs(t: &Block, c: &Call) -> u64 {
    let own = own_stack(t);
    let mut sum = 0;
    let mut add = |word: u64| {
        // SAFETY: a word of ours.
        sum = unsafe { hash::bytes(sum, &word as *const u64 as u64, 8) };
    };
    c.inputs(|p, n| {
        let mut at = 0;
        while at + 8 <= n {
            let word = guard::read::<u64>(p + at as u64).unwrap_or(0);
            add(match word {
                w if holds(head().is, w) => 1 << 63,
                w if own.contains(&w) => 2 << 62,
                w => w,
            });
            at += 8;
        }
        while at < n {
            add(guard::read::<u8>(p + at as u64).unwrap_or(0) as u64);
            at += 1;
        }
    });
    sum
}

/// The mapping in which the thread's stack is.
fn own_stack(t: &Block) -> core::ops::Range<u64> {
    let _lock = space::lock();
    map().at(t.program_sp).map_or(0..0, |r| r.start..r.end)
}

/// Where what a call wrote belongs now, that was written to `address`. `None`: that is not known.
pub fn place(c: &Call, was: &[u64], address: u64) -> Option<u64> {
    if !on() || was[..c.nargs] == c.args[..c.nargs] && !names_buffers(c) {
        return Some(address);
    }
    let leads = |i: &usize| c.mem[*i] != Mem::None || is_address(c.nr, *i);
    let told = (0..c.nargs).find(|i| was[*i] == address && leads(i));
    if let Some(i) = told {
        return Some(c.args[i]);
    }
    // A buffer that a structure names.
    let found = Cell::new(false);
    c.all_memory(|p, len| {
        found.set(found.get() || address.wrapping_sub(p) < len);
        true
    });
    found.get().then_some(address)
}

/// Is memory written whose addresses are in a structure?
fn names_buffers(c: &Call) -> bool {
    let named = |m: &Mem| matches!(m, Mem::IovecOut(_) | Mem::MsghdrOut | Mem::MmsghdrOut(_));
    c.mem[..c.nargs].iter().any(named)
}

/// prctl(2) with the option by which a program prints (`include/reprise.h`): no call that anybody records.
#[inline(always)]
pub fn is_print(number: u64, option: u64) -> bool {
    number == nr::PRCTL && option == PRINT
}

/// Prints to the standard error: while recording to the program's, in a replay to that of the replay.
pub fn print(address: u64, len: u64) -> i64 {
    const MOST: u64 = 1 << 20;
    if crate::log::output::is_shown() {
        write_out(address, len.min(MOST));
    }
    len as i64
}

fn write_out(address: u64, len: u64) {
    let (mut at, end) = (address, address.saturating_add(len));
    while at < end {
        let mut bytes = [0u8; 256];
        let n = (end - at).min(bytes.len() as u64) as usize;
        if !guard::read_bytes(at, &mut bytes[..n]) {
            return;
        }
        let mut done = 0;
        while done < n {
            let w = sys::write(2, bytes.as_ptr() as u64 + done as u64, (n - done) as u64);
            match w {
                -4 | -11 => {}
                w if w <= 0 => return,
                w => done += w as usize,
            }
        }
        at += n as u64;
    }
}

/// The program leaves the recorded path by writing something to its output: that is shown, since it may be what an assertion says.
pub fn show(call: u32, args: &[u64]) {
    const MOST: u64 = 4096;
    if let (true, true, [1 | 2, at, len, ..]) = (on(), call as u64 == nr::WRITE, args) {
        write_out(*at, (*len).min(MOST));
    }
}
