//! Faults between threads: one thread changes what another one may touch, and that one's next access faults.
//!
//! When a fault comes, then, is up to the other thread. So a recording logs it while it holds the lock of the address space, with a stamp: between
//! which calls of mprotect(2) and their like it lies is known. If these allow the access by now, it is made again, as if it had come later. A fault
//! that came by the thread's own doing is known by its place alone. For what a replay makes of it see [`super::replay::faults`].

use super::cut;
use super::record::draw_alive;
use crate::code::resolver::is_in_loader;
use crate::common::stopped::{hash_of, is_ours, processor_time, registers, Stopped, FP_LEN};
use crate::log::events;
use crate::log::ring::Writer;
use crate::machine::frame::frame_hash;
use crate::machine::{guard, hash, sys};
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::space;
use crate::signal::frame::SigContext;
use crate::thread::rings::head;
use crate::thread::signals::{Siginfo, SIGSEGV};
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::event::{registers_hash, section_len, EventHeader, Kind, Tag};
use reprise_code::patchable::classify;
use reprise_place::choose::Discriminators;
use reprise_place::name::{Name, MAX_NAME};
use reprise_place::walk::{Plan, CHANGING_PAGES};

/// `si_code`: nothing is mapped there (sigaction(2)), ...
const MAPERR: i32 = 1;
/// ... or what is mapped there is protected.
const ACCERR: i32 = 2;
/// Nobody maps memory below in order to make threads fault; null pointers point there.
const LOWEST: u64 = 1 << 16;
/// Words from the stack pointer on by which visits of a place are told apart.
const STACK_WORDS: u64 = 16;

/// In the place of a hash of the thread's state: no other thread has changed anything, so that the first access of all is the one that faults.
pub(super) const ANY_STATE: u64 = 0;

/// Can another thread have to do with it?
pub(super) fn is_of_others(info: &Siginfo) -> bool {
    let protected = matches!(info.code(), MAPERR | ACCERR) && info.address() >= LOWEST;
    info.signal() == SIGSEGV && protected
}

/// Arguments of [`Kind::Fault`]: address, `si_code`, the thread's registers.
pub(super) fn arguments(info: &Siginfo, mc: &SigContext) -> [u64; 3] {
    let registers = frame_hash(&mc.to_frame());
    [info.address(), info.code() as u64, registers]
}

/// As [`arguments`], with the words at the stack pointer beside the registers: a counter may be there.
pub(super) fn arguments_of_visit(info: &Siginfo, mc: &SigContext) -> [u64; 3] {
    let [address, code, registers] = arguments(info, mc);
    let words = (0..STACK_WORDS).map(|i| guard::read(mc.rsp.wrapping_add(8 * i)));
    let state = words.fold(registers, |state, word: Option<u64>| {
        hash::words(state, &[word.unwrap_or(0)])
    });
    [address, code, state]
}

/// What the access that faulted wants, as bits of mmap(2)'s protection: one of them is enough.
pub(super) fn wanted(mc: &SigContext) -> u32 {
    /// Bits of the error code of a page fault (Intel SDM 4.7): it was a write, ...
    const BY_WRITE: u64 = 1 << 1;
    /// ... or a fetch of an instruction.
    const BY_FETCH: u64 = 1 << 4;
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const EXEC: u32 = 4;
    match mc.err {
        e if e & BY_FETCH != 0 => EXEC,
        e if e & BY_WRITE != 0 => WRITE,
        _ => READ | WRITE | EXEC,
    }
}

/// Changes of the address space that are remembered.
const REMEMBERED: usize = 64;
/// The last of them: the stamp behind it, who made it, and the memory from where to where. Used with the lock of the address space held.
static CHANGES: [[AtomicU64; 4]; REMEMBERED] =
    [const { [const { AtomicU64::new(0) }; 4] }; REMEMBERED];
/// How many there were.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A call has changed what may be touched. The lock of the address space is held.
pub(super) fn changed(t: &Block, c: &Call, result: i64) {
    let (start, len) = match c.effect {
        _ if sys::is_error(result) => return,
        Effect::Protects | Effect::Unmaps | Effect::Remaps => (c.args[0], c.args[1]),
        Effect::Maps => (result as u64, c.args[1]),
        Effect::Attaches | Effect::Detaches | Effect::Breaks => (0, u64::MAX),
        _ => return,
    };
    let number = COUNT.fetch_add(1, Relaxed);
    let change = [
        t.order().last_stamp,
        t.slot.into(),
        start,
        start.saturating_add(len),
    ];
    let place = &CHANGES[number as usize % REMEMBERED];
    place
        .iter()
        .zip(change)
        .for_each(|(to, word)| to.store(word, Relaxed));
}

/// Has another thread changed this memory since the calling one has drawn its last stamp, as far as is remembered? If not, any access to it since then
/// faults: the first one. The lock of the address space is held.
fn was_changed_meanwhile(t: &Block, address: u64) -> bool {
    let mut forgotten = COUNT.load(Relaxed) > REMEMBERED as u64;
    let mut by_others = false;
    for change in &CHANGES {
        let [stamp, slot, start, end] = change.each_ref().map(|word| word.load(Relaxed));
        let is_before = stamp <= t.order().last_stamp;
        // Older ones are forgotten, and are older than that.
        forgotten &= !is_before;
        by_others |= !is_before && slot != t.slot as u64 && (start..end).contains(&address);
    }
    by_others || forgotten
}

/// The place of the instruction that faults, if it can be found by its name: what tells this visit of it from others.
fn name_of_place(t: &Block, mc: &SigContext) -> Option<Name> {
    let machine = Stopped {
        fpstate: mc.fpstate,
        under: None,
    };
    if is_ours(mc.rip) || is_in_loader(mc.rip) || session().xsave_size as usize > FP_LEN {
        return None;
    }
    let place = *classify(mc.rip, &machine).best()?;
    let plan = Plan {
        regs: registers(t, mc),
        form: place.form,
        len: place.len,
        discriminators: Discriminators::default(),
        pages: [0; CHANGING_PAGES],
        spin: false,
        rare: false,
    };
    Some(Name::of(&plan, &machine, hash_of))
}

/// Logs a fault. True: the access is to be made again, if it `can` be.
pub(super) fn log(t: &mut Block, info: &Siginfo, mc: &SigContext, can: bool) -> bool {
    let (slot, signal, pc) = (t.slot, info.signal(), mc.rip as i64);
    if cut::alone() || !is_of_others(info) {
        events::plain(Kind::Fault, slot, signal, pc, &arguments(info, mc));
        return false;
    }
    let _lock = space::lock();
    let region = memory::map().at(info.address());
    if can && region.is_some_and(|r| r.prot & wanted(mc) != 0) {
        // Once: what refuses it then is nothing that the map knows.
        let here = (mc.rip, head().stamp.0.load(SeqCst));
        if t.order().made_again != here {
            t.order().made_again = here;
            return true;
        }
    }
    let mut bytes = [0; MAX_NAME];
    let [address, code, state] = arguments_of_visit(info, mc);
    let (state, name) = match was_changed_meanwhile(t, address) {
        true => (state, name_of_place(t, mc).filter(|_| can)),
        false => (ANY_STATE, None),
    };
    let len = name.and_then(|n| n.to_bytes(&mut bytes));
    let ran = processor_time() as u64;
    let args = [address, code, state, ran, draw_alive()];
    let section = len.map_or(0, section_len);
    let mut w = Writer::begin(&EventHeader {
        detail: signal,
        value: pc,
        input_hash: match state {
            ANY_STATE => 0,
            _ => registers_hash(&general(mc)),
        },
        ..events::header(Kind::Fault, slot, args.len(), section)
    });
    w.put_words(&args);
    if let Some(len) = len {
        w.put_section(Tag::State as u32, 0, bytes.as_ptr() as u64, len);
    }
    w.finish();
    false
}

/// The general registers, in the order that [`registers_hash`] wants.
fn general(mc: &SigContext) -> [u64; 16] {
    [
        mc.rax, mc.rbx, mc.rcx, mc.rdx, mc.rsi, mc.rdi, mc.rbp, mc.rsp, mc.r8, mc.r9, mc.r10,
        mc.r11, mc.r12, mc.r13, mc.r14, mc.r15,
    ]
}
