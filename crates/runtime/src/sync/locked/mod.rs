//! Instructions that change memory in one step, in code that nobody prepared: the locks that libc has inlined, the atomic variables of programs
//! (DESIGN 5, `order`; FACTS, "Locked instructions in unmodified binaries").
//!
//! While a program has one thread, and its memory to itself, there is nothing to order. When the first other thread is about to be made, or
//! memory is mapped that other processes may write to, and when a library is mapped later, all code of files is searched ([`units`]), and each such instruction becomes a jump to a [`stub`] that makes it at its place
//! in the order of its [shard](crate::thread::shards). Where there is no room for a jump, a trap leads there.
//!
//! The stubs lie in an **annex** near the code. Its place is an event ([`LOCKED`], [`LOCKED_WITH_CODE`]); all else follows from the
//! code's bytes, so that a replay finds the same.
//!
//! A fault of the instruction is the program's, at the instruction's own address. The operation counts nevertheless: a replay faults at the same
//! number.
//!
//! Not seen are plain loads and stores, code that a program generates, and modules without a table for unwinding.

pub mod enter;
pub mod learned;
mod memo;
pub mod operation;
pub mod scan;
pub mod search;
pub mod shared;
pub mod stub;
pub mod table;
pub mod thread_id;
pub mod units;

use crate::code::patch::{self, LOCKED, LOCKED_WITH_CODE};
use crate::dispatch::with_order;
use crate::engine::order::Order;
use crate::machine::guard::{self, Program};
use crate::machine::sys;
use crate::memory::{self, map, Region};
use crate::signal::frame::SigContext;
use crate::thread::in_force;
use crate::thread::shards;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::event::Kind;
use reprise_abi::layout::PAGE;
use reprise_abi::session::{region_flags, FLAG_EPOCHS, FLAG_LOCKED};
use reprise_code::decode::Insn;
use search::{find, UNITS};
use stub::{Purpose, Stub};
use table::Table;
use units::{How, Step, Unit, Waits, JUMP};

/// What a stub keeps in the thread's block while an instruction is made.
#[repr(C)]
#[derive(Default)]
pub struct Save {
    /// Registers that the stub uses.
    pub rax: u64,
    /// As above.
    pub rcx: u64,
    /// As above.
    pub rdx: u64,
    /// The flags: `lahf` and the overflow flag.
    pub flags: u64,
    /// Address of the shard that is locked.
    pub shard: u64,
    /// What its sequence is to become.
    pub next: u64,
    /// Where the stub goes on after the long way.
    pub resume: u64,
    /// The value that a learned load takes.
    pub value: u64,
}

impl Block {
    /// What a stub keeps of the thread.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn saved(&self) -> &mut Save {
        // SAFETY: the area is this room's own; plain words.
        unsafe { self.stub.get::<Save>() }
    }
}

/// Room for a stub in an annex, on average.
const ROOM: u64 = 640;
/// The same for one at which threads give way.
const WAIT_ROOM: u64 = 160;
/// Most instructions that were moved into stubs, of all modules.
const MAX_MOVED: usize = 1 << 17;
/// Most traps.
const MAX_TRAPS: usize = 4096;
/// Most annexes.
const MAX_ANNEXES: usize = 512;
/// A jump reaches this far.
const REACH: u64 = 0x7000_0000;
/// The lowest address that a program may map.
const LOWEST: u64 = 0x1_0000;

/// Record: the code of the program is ordered, since there are threads.
static THREADS: AtomicBool = AtomicBool::new(false);

/// Where an instruction lies in a stub.
#[derive(Clone, Copy)]
struct InStub {
    /// Where it is made.
    pc: u64,
    /// Where it was.
    from: u64,
    /// Where its code in the stub begins.
    entry: u64,
    /// Its shard is locked when it is made.
    ordered: bool,
    /// Nothing leads to `from` any more but what is told of here.
    inner: bool,
}

/// A piece of stubs.
#[derive(Clone, Copy)]
struct Annex {
    start: u64,
    end: u64,
    /// It is for code of libc, or of ld.so.
    of_libc: bool,
    /// The first of its instructions in [`MOVED`], and the first of the next one's.
    moved: (usize, usize),
}

static MOVED: Table<InStub> = Table::new();
static ANNEXES: Table<Annex> = Table::new();
/// Traps and their stubs. A trap whose code is gone is 0.
static TRAPS: [(AtomicU64, AtomicU64); MAX_TRAPS] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MAX_TRAPS];
static TRAPS_LEN: AtomicUsize = AtomicUsize::new(0);

/// Record: a thread is about to be made.
pub fn before_thread(t: &mut Block) {
    begin(t, LOCKED);
}

/// Record, at the end of a call that has mapped memory which other processes may have mapped, too.
pub fn memory_shared(t: &mut Block) {
    begin(t, LOCKED_WITH_CODE);
}

/// Det: threads are about to be made, of which each is a process: the code that all will have is changed now.
pub fn before_processes() {
    if session().flags & FLAG_LOCKED == 0 {
        return;
    }
    for r in memory::each() {
        if let Some((annex, len)) = annex_for(&r) {
            replace(&r, annex, len, false);
        }
    }
}

/// Det, with threads: a module is completely mapped.
pub fn module_of_processes(module: &reprise_code::elf::Module) {
    if session().flags & FLAG_LOCKED == 0 {
        return;
    }
    for r in memory::each().filter(|r| module.holds(&Program, r.start)) {
        if let Some((annex, len)) = annex_for(&r) {
            replace(&r, annex, len, false);
        }
    }
}

/// Record: do the program's threads run on all processors, or will they ([`crate::gate::leader`])?
fn is_wanted() -> bool {
    in_force::records_synchronisation() || session().flags & FLAG_EPOCHS != 0
}

fn begin(t: &mut Block, form: u32) {
    if !is_wanted() || session().flags & FLAG_LOCKED == 0 || THREADS.swap(true, Relaxed) {
        return;
    }
    for r in memory::each() {
        record(t, &r, form);
    }
}

/// Record: a module is completely mapped.
pub fn module_completed(t: &mut Block, module: &reprise_code::elf::Module) {
    if !is_wanted() || !THREADS.load(Relaxed) {
        return;
    }
    for r in memory::each() {
        if module.holds(&Program, r.start) {
            record(t, &r, LOCKED_WITH_CODE);
        }
    }
}

/// Room for what is to be replaced in this region, if there is anything.
fn annex_for(code: &Region) -> Option<(u64, u64)> {
    if !code.is_code() || find(code).is_none() || UNITS.all().is_empty() {
        return None;
    }
    let len = (UNITS.all().len() as u64 * ROOM).next_multiple_of(PAGE);
    let annex = find_room(code, len);
    if annex.is_none() {
        missed(UNITS.all().len());
    }
    annex.map(|at| (at, len))
}

fn record(t: &mut Block, code: &Region, form: u32) {
    let Some((annex, len)) = annex_for(code) else {
        return;
    };
    let args = [code.start, annex, len];
    let units = UNITS.all().len() as i64;
    crate::log::events::plain(Kind::Patch, t.slot, form, units, &args);
    replace(code, annex, len, false);
}

/// Replay: does what the recording did with the code at this address.
pub fn replay(code: u64, annex: u64, len: u64) -> bool {
    let Some(region) = map().at(code) else {
        return false;
    };
    find(&region).is_some() && map_annex(annex, len) && {
        replace(&region, annex, len, true);
        true
    }
}

/// Replay with a rebuilt program: its code, in the place of the recorded one's. Its annex lies where the other's was, if that was one and is enough.
pub fn replay_rebuilt(code: &Region, annex: Option<(u64, u64)>) {
    if find(code).is_none() || UNITS.all().is_empty() {
        return;
    }
    let len = (UNITS.all().len() as u64 * ROOM).next_multiple_of(PAGE);
    let same = annex.filter(|(at, room)| len <= *room && map_annex(*at, *room));
    match same.or_else(|| find_room(code, len).map(|at| (at, len))) {
        Some((at, len)) => replace(code, at, len, true),
        None => missed(UNITS.all().len()),
    }
}

fn missed(n: usize) {
    session()
        .counters
        .locked_missed
        .fetch_add(n as u64, Relaxed);
}

/// A place for an annex that all of the code can reach: below its module, since above it the heap may want to grow.
fn find_room(code: &Region, len: u64) -> Option<u64> {
    let list = map().regions();
    let i = list.iter().position(|r| r.start == code.start)?;
    for k in (0..=i).rev() {
        let low = if k == 0 { LOWEST } else { list[k - 1].end };
        let Some(at) = list[k].start.checked_sub(len).filter(|at| *at >= low) else {
            continue;
        };
        if code.end - at < REACH && map_annex(at, len) {
            return Some(at);
        }
    }
    for k in i..list.len() {
        let at = list[k].end;
        let next = list.get(k + 1);
        let high = next.map_or(u64::MAX, |r| r.start);
        let grows = next.is_some_and(|r| r.flags & region_flags::STACK != 0);
        if !grows && at + len <= high && at + len - code.start < REACH && map_annex(at, len) {
            return Some(at);
        }
    }
    None
}

fn map_annex(at: u64, len: u64) -> bool {
    const PROT_READ_EXEC: u32 = 5;
    if memory::is_ours(at, len) || at < LOWEST {
        return false;
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
    if sys::mmap(at, len, sys::PROT_RW, flags, u64::MAX, 0) != at as i64 {
        return false;
    }
    map().insert(Region {
        start: at,
        end: at + len,
        prot: PROT_READ_EXEC,
        ..Default::default()
    });
    memory::beside::note(at, len);
    true
}

/// Writes the stubs, then the jumps to them.
fn replace(code: &Region, annex: u64, len: u64, replays: bool) {
    let opened = sys::mprotect(code.start, code.end - code.start, sys::PROT_RW) == 0;
    let mut w = Writing {
        next: annex,
        end: annex + len,
        replays,
    };
    let first = MOVED.all().len();
    for u in UNITS.all() {
        if !opened || w.unit(u).is_none() {
            missed(1);
        }
    }
    sys::mprotect(code.start, code.end - code.start, code.prot as u64);
    sys::mprotect(annex, len, 5);
    let done = Annex {
        start: annex,
        end: annex + len,
        of_libc: crate::sync::hook::is_libc(code),
        moved: (first, MOVED.all().len()),
    };
    ANNEXES.push(MAX_ANNEXES, done);
}

/// An annex that is being filled.
struct Writing {
    next: u64,
    end: u64,
    replays: bool,
}

impl Writing {
    fn unit(&mut self, u: &Unit) -> Option<()> {
        if u.how != How::Trap {
            return self.one(u);
        }
        // Each for itself.
        let mut pc = u.start;
        for n in 0..stub::MAX_INSNS {
            if pc >= u.end {
                break;
            }
            let i = Insn::at(pc, &Program)?;
            if !matches!(u.step(n, &i), Step::Plain | Step::LeftOut) {
                let own = Unit {
                    start: pc,
                    end: i.end(),
                    how: How::Trap,
                    skips: 0,
                    ordered: u.ordered >> n & 1,
                    valued: u.valued >> n & 1,
                    waits: u.waits >> n & 1,
                };
                self.one(&own)?;
            }
            pc = i.end();
        }
        Some(())
    }

    fn one(&mut self, u: &Unit) -> Option<()> {
        let purpose = match self.replays {
            false => Purpose::Record,
            true if in_force::lists_operations() => Purpose::List,
            true => Purpose::Replay,
        };
        let stub = Stub::new(u, self.next, purpose, |pc| Insn::at(pc, &Program))?;
        let at = self.next;
        let end = at + (stub.bytes().len() as u64).next_multiple_of(16);
        if end > self.end || MOVED.all().len() + stub.moved().len() > MAX_MOVED {
            return None;
        }
        if u.how == How::Trap {
            add_trap(u.start, at)?;
        }
        for m in stub.moved() {
            let it = InStub {
                pc: at + m.at as u64,
                from: m.from,
                entry: at + m.entry as u64,
                ordered: m.ordered,
                inner: m.from != u.start,
            };
            MOVED.push(MAX_MOVED, it)?;
        }
        let counters = &session().counters;
        if !guard::write_bytes(at, stub.bytes()) {
            return None;
        }
        self.next = end;
        if u.how == How::Trap {
            counters.locked_traps.fetch_add(1, Relaxed);
            return guard::write_bytes(u.start, &[0xcc]).then_some(());
        }
        let mut jump = [0xe9, 0, 0, 0, 0];
        jump[1..].copy_from_slice(&(at.wrapping_sub(u.start + JUMP) as u32).to_le_bytes());
        counters.locked_sites.fetch_add(1, Relaxed);
        guard::write_bytes(u.start, &jump).then_some(())
    }
}

fn add_trap(pc: u64, stub: u64) -> Option<()> {
    let n = TRAPS_LEN.load(Relaxed);
    let (at, to) = TRAPS.get(n)?;
    to.store(stub, Relaxed);
    at.store(pc, Release);
    TRAPS_LEN.store(n + 1, Release);
    Some(())
}

/// Something else lies there now.
pub fn forget(start: u64, end: u64) {
    for (at, _) in &TRAPS[..TRAPS_LEN.load(Acquire)] {
        if (start..end).contains(&at.load(Relaxed)) {
            at.store(0, Relaxed);
        }
    }
}

/// Is this address in a stub?
pub fn is_stub(pc: u64) -> bool {
    let annexes = ANNEXES.all();
    annexes.iter().any(|a| (a.start..a.end).contains(&pc))
}

/// In these bytes of code from `at`, jumps to stubs have no targets any more: stubs are shorter in a replay, and lie elsewhere.
pub fn blank_jumps(at: u64, code: &mut [u8]) {
    const OPCODE: u8 = 0xe9;
    const LEN: u64 = 5;
    let end = at + code.len() as u64;
    // One that begins before may end in here.
    for start in at.saturating_sub(LEN - 1)..end {
        let next = start + LEN;
        let is_jump = match start.checked_sub(at) {
            Some(i) => code[i as usize] == OPCODE,
            None => guard::read(start) == Some(OPCODE),
        };
        let target = is_jump
            .then(|| guard::read::<i32>(next - 4))
            .flatten()
            .map(|distance| next.wrapping_add_signed(distance.into()));
        if target.is_some_and(is_stub) {
            let within = |a: u64| (a.clamp(at, end) - at) as usize;
            code[within(start + 1)..within(next)].fill(0);
        }
    }
}

/// Replaces the places of a mapping at which threads give way, where there are any: where the stubs are, and how much room they have. Other threads
/// may be stopped in the program's code; [`moved_to`] tells where those go on.
pub fn add_waits(code: &Region, waits: Waits) -> Option<(u64, u64)> {
    search::find_waits(code, waits)?;
    if UNITS.all().is_empty() {
        return None;
    }
    let len = (UNITS.all().len() as u64 * WAIT_ROOM).next_multiple_of(PAGE);
    let annex = find_room(code, len)?;
    replace(code, annex, len, false);
    Some((annex, len))
}

/// Replay: does what [`add_waits`] did in the recording, with the code at this address.
pub fn replay_waits(code: u64, waits: Waits, annex: u64, len: u64) -> bool {
    let Some(region) = map().at(code) else {
        return false;
    };
    search::find_waits(&region, waits).is_some() && map_annex(annex, len) && {
        replace(&region, annex, len, true);
        true
    }
}

/// Where the program's instruction at `pc` is now, if nothing leads to its old place any more.
pub fn moved_to(pc: u64) -> Option<u64> {
    ANNEXES.all().iter().find_map(|a| {
        let all = MOVED.all().get(a.moved.0..a.moved.1)?;
        let m = all[all.binary_search_by_key(&pc, |m| m.from).ok()?];
        m.inner.then_some(m.entry)
    })
}

/// Where in the program the thread is that a stub has sent to the runtime: from where the stub goes on.
pub fn place_of(resume: u64) -> Option<u64> {
    let annex = ANNEXES
        .all()
        .iter()
        .find(|a| (a.start..a.end).contains(&resume))?;
    let all = MOVED.all().get(annex.moved.0..annex.moved.1)?;
    // A load that is recorded is made behind its note.
    let next = all.partition_point(|m| m.pc < resume);
    let here = |m: &&InStub| m.entry <= resume && resume <= m.pc;
    let found = all.get(next).filter(here);
    found.or_else(|| all[..next].last()).map(|m| m.from)
}

/// The instruction of libc's that the thread is about to make which a stub has sent to the runtime, from where the stub goes on; and where in libc it was.
pub fn next_of_libc(resume: u64) -> Option<(Insn, u64)> {
    let mut annexes = ANNEXES.all().iter();
    let annex = annexes.find(|a| a.of_libc && (a.start..a.end).contains(&resume))?;
    let all = MOVED.all().get(annex.moved.0..annex.moved.1)?;
    let m = all.get(all.partition_point(|m| m.pc < resume))?;
    Some((Insn::at(m.pc, &Program)?, m.from))
}

/// As [`place_of`], when the instruction has been made: behind it.
pub fn place_behind(resume: u64) -> Option<u64> {
    let annex = ANNEXES
        .all()
        .iter()
        .find(|a| (a.start..a.end).contains(&resume))?;
    let all = MOVED.all().get(annex.moved.0..annex.moved.1)?;
    let m = all.get(all.partition_point(|m| m.pc < resume).checked_sub(1)?)?;
    Some(m.from + Insn::at(m.pc, &Program)?.bytes().len() as u64)
}

/// Is this address in a stub for code of libc, or of ld.so?
pub fn is_in_libc(pc: u64) -> bool {
    let mut annexes = ANNEXES.all().iter();
    annexes.any(|a| a.of_libc && (a.start..a.end).contains(&pc))
}

/// A trap of ours goes on in its stub; false: it is none.
pub fn trapped(c: &mut SigContext) -> bool {
    let traps = &TRAPS[..TRAPS_LEN.load(Acquire)];
    let stub = traps
        .iter()
        .find(|(at, _)| at.load(Relaxed) == c.rip - 1)
        .map(|(_, to)| to.load(Relaxed));
    if let Some(stub) = stub {
        c.rip = stub;
    }
    stub.is_some()
}

/// A fault in a stub becomes one of the program's instruction. Where it happened, for a program that can't go on.
pub fn fault(t: &mut Block, c: &mut SigContext) -> Option<u64> {
    let annex = ANNEXES
        .all()
        .iter()
        .find(|a| (a.start..a.end).contains(&c.rip))?;
    let all = MOVED.all().get(annex.moved.0..annex.moved.1)?;
    let there = c.rip;
    let m = all[all.binary_search_by_key(&there, |m| m.pc).ok()?];
    c.rip = m.from;
    let mut number = None;
    if m.inner {
        patch::note_inner(m.from, m.entry);
    }
    if m.ordered {
        let n = shards::number_at(t.saved().shard);
        shards::shard(n).sequence.store(t.saved().next, SeqCst);
        number = Some(n);
        c.rflags = flags_over(t, c.rflags);
    }
    with_order!(O => O::faulted_in_stub(t, number));
    Some(there)
}

/// The flags that the stub has kept, over others.
fn flags_over(t: &Block, others: u64) -> u64 {
    // CF PF AF ZF SF as `lahf` has them, and OF.
    const LOW: u64 = 0xd5;
    const OVERFLOW: u64 = 0x800;
    let flags = t.saved().flags;
    others & !(LOW | OVERFLOW) | flags >> 8 & LOW | ((flags & 1) * OVERFLOW)
}
