//! A replay with a rebuilt program (`replay --with`): the same events, by other code, whose variables may lie elsewhere.
//!
//! What is compared is what a rebuilt program must do as well: which calls, in which order, with which numbers and which bytes. Addresses are
//! compared as far as they mean something: an address in the program stands for what lies there, and one that the kernel follows for the memory
//! behind it. What a call wrote goes where the program wants it now. Registers and hashes of memory are not compared, and a place in mid-code that
//! is named by them can't be found.
//!
//! Objects are known by the addresses that they had in the recording ([`recorded`]).

use crate::capture::Call;
use crate::guard;
use crate::memory::map;
use crate::order::shards;
use crate::sys;
use crate::thread::{current, session, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::rebuilt::{Moved, Rebuilt, MAX_MOVED, PRINT, REBUILT_BASE};
use reprise_abi::session::FLAG_REBUILT;
use reprise_abi::spec::{Mem, Size};
use reprise_abi::syscalls::nr;

/// Behind the address that an argument told, a call writes at most so far.
const FAR: u64 = 1 << 30;

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

/// The address that in the recording had what lies at this one.
#[inline(always)]
pub fn recorded(address: u64) -> u64 {
    if !on() {
        return address;
    }
    of_variable(address).unwrap_or(address)
}

/// As [`recorded`], of what lies in one of the program's variables.
fn of_variable(address: u64) -> Option<u64> {
    if !holds(head().is, address) {
        return None;
    }
    let list = moved();
    let i = list.partition_point(|m| m.start <= address);
    let m = list.get(i.checked_sub(1)?)?;
    (address < m.end).then(|| m.was + (address - m.start))
}

/// Words outside of the program's data whose shard the log has told.
const MAX_WORDS: usize = 1 << 14;
/// How far from where its hash says a word is looked for.
const NEAR: usize = 64;

/// A word, and the number of its shard in the recording.
struct Word {
    address: AtomicU64,
    shard: AtomicU32,
}

static WORDS: [Word; MAX_WORDS] = [const {
    Word {
        address: AtomicU64::new(0),
        shard: AtomicU32::new(0),
    }
}; MAX_WORDS];

/// The words' places that may be that of the word at this address: its own, and empty ones.
fn words_for(address: u64) -> impl Iterator<Item = &'static Word> {
    let first = (address >> 2).wrapping_mul(shards::FACTOR) >> 50;
    (0..NEAR).map(move |k| &WORDS[(first as usize + k) % MAX_WORDS])
}

/// Number of the shard that in the recording ordered the word which is now at this address. `told`: the log says so for this operation.
///
/// Where the program's variables were is known. Frames may have another size in a rebuilt program, constants another place, and what it allocates
/// another address: of a word there, the log tells the shard whenever another thread had used that last, and so at first. From then on it is known.
pub fn shard_of(t: &mut Block, address: u64, told: Option<u32>) -> u32 {
    if let Some(was) = of_variable(address) {
        return shards::number_of(was);
    }
    if is_own_stack(t, address) {
        match told {
            Some(number) => t.order.frames.tell(address, number),
            None => return t.order.frames.shard(address),
        }
    }
    for w in words_for(address) {
        if let (Some(number), Ok(_)) =
            (told, w.address.compare_exchange(0, address, SeqCst, SeqCst))
        {
            w.shard.store(number, SeqCst);
            return number;
        }
        match w.address.load(SeqCst) {
            0 => break,
            a if a == address => {
                if let Some(number) = told {
                    w.shard.store(number, SeqCst);
                }
                return w.shard.load(SeqCst);
            }
            _ => {}
        }
    }
    told.unwrap_or_else(|| shards::number_of(address))
}

/// How far a thread's frames may have moved, in bytes.
const MOST_MOVED: i64 = 64 << 10;
/// Frames lie at multiples of this.
const FRAME_ALIGN: i64 = 16;

/// By how many bytes the frames that a thread is in have moved, as far as the log has told.
#[derive(Default)]
pub struct Frames {
    moved: i64,
    /// The last words of which it told the shard, the latest first.
    told: [(u64, u32); 4],
}

impl Frames {
    fn shard(&self, address: u64) -> u32 {
        shards::number_of(address.wrapping_sub(self.moved as u64))
    }

    /// The log says which shard orders this word.
    fn tell(&mut self, address: u64, number: u32) {
        self.told.rotate_right(1);
        self.told[0] = (address, number);
        if self.shard(address) == number {
            return;
        }
        // What fits most of the words, and of several such, the one nearest to what was known.
        let fits = |d: i64| {
            let at = |a: u64| shards::number_of(a.wrapping_sub(d as u64));
            let all = self.told.iter();
            all.take_while(|(a, n)| *a != 0 && at(*a) == *n).count()
        };
        let (mut best, mut moved) = (0, self.moved);
        for k in 0..=MOST_MOVED / FRAME_ALIGN {
            for d in [k * FRAME_ALIGN, -k * FRAME_ALIGN] {
                let n = fits(self.moved + d);
                if n > best {
                    (best, moved) = (n, self.moved + d);
                }
            }
        }
        self.moved = moved;
    }
}

/// Is this a word of the thread's own stack, below where the stack began?
fn is_own_stack(t: &Block, address: u64) -> bool {
    let top = match t.start.rsp {
        0 => session().initial_sp,
        rsp => rsp,
    };
    (t.program_sp..top).contains(&address)
}

/// A call from outside of the program's own code had this address for an argument, and that one in the recording.
fn tell_of_frame(t: &mut Block, was: u64, now: u64) {
    let pc = t.slot().last_pc.load(Relaxed);
    let moved = now.wrapping_sub(was) as i64;
    if is_own_stack(t, now) && !holds(head().is, pc) && moved.abs() <= MOST_MOVED {
        t.order.frames.moved = moved;
    }
}

/// Was this address in the recorded program's file? Its code and its data are not there any more.
pub fn was_program(address: u64) -> bool {
    on() && holds(head().was, address)
}

/// The code of the program, in the place of the recorded one's.
pub fn code() -> Option<u64> {
    const PROT_EXEC: u32 = 4;
    let found = |r: &&crate::memory::Region| holds(head().is, r.start) && r.prot & PROT_EXEC != 0;
    map().regions().iter().find(found).map(|r| r.start)
}

/// Do these two addresses, the one of the recording and the one of now, stand for the same?
fn alike(was: u64, now: u64) -> bool {
    if was == now || recorded(now) == was {
        return true;
    }
    let h = head();
    if holds(h.is, now) {
        return holds(h.was, was);
    }
    // Variables of functions: frames may have another size.
    map()
        .at(now)
        .is_some_and(|r| (r.start..r.end).contains(&was))
}

/// How many of a call's arguments always mean something: registers of the others hold whatever the code left there.
fn meaning(number: u64) -> usize {
    match number {
        nr::FUTEX => 3,
        nr::FCNTL | nr::IOCTL | nr::PRCTL | nr::OPEN => 2,
        nr::OPENAT => 3,
        nr::MREMAP => 4,
        _ => 6,
    }
}

/// Are these the arguments of the recorded call?
#[inline]
pub fn same_arguments(c: &Call, was: &[u64]) -> bool {
    let now = &c.args[..c.nargs];
    let was = &was[..c.nargs];
    if was == now {
        return true;
    }
    if !on() {
        return false;
    }
    let of_program =
        |i: usize| now.len() > i && holds(head().is, now[i]) && holds(head().was, was[i]);
    if c.nr == nr::MPROTECT && of_program(0) {
        // What the dynamic linker has filled in: its size depends on the program.
        return true;
    }
    let counts = meaning(c.nr).min(c.nargs);
    let t = current();
    now.iter()
        .zip(was)
        .zip(&c.mem)
        .take(counts)
        .all(|((now, was), mem)| {
            if *mem != Mem::None {
                tell_of_frame(t, *was, *now);
            }
            now == was || *now != 0 && *was != 0 && (*mem != Mem::None || alike(*was, *now))
        })
}

/// Is this hash of a call's inputs that of the recorded call? Structures may hold addresses.
#[inline]
pub fn same_inputs(c: &Call, was: u64, now: u64) -> bool {
    was == now || on() && c.mem[..c.nargs].iter().any(may_hold_addresses)
}

fn may_hold_addresses(mem: &Mem) -> bool {
    match mem {
        Mem::None | Mem::Path | Mem::IovecIn(_) | Mem::Out { .. } | Mem::OutAlways(_) => false,
        Mem::In(size) => !matches!(size, Size::Arg(_)),
        _ => true,
    }
}

/// Where what a call wrote belongs now, that was written to `address`.
pub fn place(c: &Call, was: &[u64], address: u64) -> u64 {
    if !on() {
        return address;
    }
    let behind =
        |i: &usize| c.mem[*i] != Mem::None && address.wrapping_sub(was[*i]) < FAR && was[*i] != 0;
    let nearest = (0..c.nargs).filter(behind).max_by_key(|i| was[*i]);
    match nearest {
        Some(i) => c.args[i] + (address - was[i]),
        None => now(address),
    }
}

/// Where that is now which in the recording was at this address.
fn now(address: u64) -> u64 {
    if !holds(head().was, address) {
        return address;
    }
    let of = |m: &&Moved| address.wrapping_sub(m.was) < m.end - m.start;
    let found = moved().iter().find(of);
    found.map_or(address, |m| m.start + (address - m.was))
}

/// prctl(2) with the option by which a program prints (`include/reprise.h`): no call that anybody records.
#[inline(always)]
pub fn is_print(number: u64, option: u64) -> bool {
    number == nr::PRCTL && option == PRINT
}

/// Prints to the standard error: while recording to the program's, in a replay to that of the replay.
pub fn print(address: u64, len: u64) -> i64 {
    const MOST: u64 = 1 << 20;
    if crate::output::is_shown() {
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
            let w = sys::call(
                nr::WRITE,
                &[2, bytes.as_ptr() as u64 + done as u64, (n - done) as u64],
            );
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
