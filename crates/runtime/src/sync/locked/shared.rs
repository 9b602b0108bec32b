//! The memory of a function that threads share, as its instructions tell.

use super::operation::{Kind, Operation};
use super::scan::fixed;
use super::thread_id::ThreadId;
use super::units::{Code, Function};
use reprise_code::decode::{Flow, Insn, Place};

/// Most places of one function that are known to be changed in one step.
const MAX_PLACES: usize = 64;
/// Most bytes of a function that waits by futexes.
pub(super) const MAX_WAITING: usize = 4096;
/// Most loops of one function that are known, and most places at which it waits or changes memory in one step.
const MAX_LOOPS: usize = 64;
/// futex(2)
pub(super) const FUTEX: u32 = 202;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const PAUSE: [u8; 2] = [0xf3, 0x90];
const RAX: u8 = 0;
/// Number of the stack pointer.
pub const RSP: u8 = 4;
const RBP: u8 = 5;
const RDI: u8 = 7;

/// The memory of a function that threads share by instructions that change it in one step: what else it loads from there and stores to
/// there is in the same order. Registers that are copied to each other are taken for one.
pub(super) struct Shared<'a> {
    /// Addresses known to the whole module.
    words: &'a dyn Fn(u64) -> bool,
    /// Each register's first kin.
    kin: [u8; 16],
    places: [Place; MAX_PLACES],
    len: usize,
    /// The function waits, by futexes or in loops with a `pause`: all that it looks at may be what it waits for. Not so in loops
    /// that only compute.
    pub(super) waits: bool,
    /// It gets from the links of libc's lists of threads to the threads.
    leaves_links: bool,
    /// First and last instruction of its loops.
    loops: List<(u64, u64)>,
    /// Where it waits or changes memory in one step.
    busy: List<u64>,
    /// Its frame is where RBP points, which optimised code has for anything.
    has_frame: bool,
    /// It changes a word at a fixed address in one step: a lock of its own.
    locks: bool,
    /// The words at fixed addresses that it stores to. Beside a lock they are what is done once, by whoever comes first, and is looked for
    /// without the lock, too.
    stored: List<u64>,
}

/// Tells where a function waits, from its instructions one after the other.
#[derive(Default)]
pub(super) struct Waits {
    /// A system call's number was that of futex(2).
    asks: bool,
}

impl Waits {
    /// Does it wait at this instruction?
    pub(super) fn at(&mut self, i: &Insn) -> bool {
        match i.loads_constant() {
            // As a system call's number, or as the first argument of syscall(3).
            Some((RAX, FUTEX)) => {
                self.asks = true;
                false
            }
            Some((RDI, FUTEX)) => true,
            _ => i.bytes() == PAUSE || (self.asks && i.bytes() == SYSCALL),
        }
    }
}

/// What has room of a list.
struct List<T> {
    items: [T; MAX_LOOPS],
    len: usize,
}

impl<T: Copy + Default> List<T> {
    fn new() -> List<T> {
        List {
            items: [T::default(); MAX_LOOPS],
            len: 0,
        }
    }

    fn push(&mut self, item: T) {
        if let Some(place) = self.items.get_mut(self.len) {
            *place = item;
            self.len += 1;
        }
    }

    fn all(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<'a> Shared<'a> {
    pub(super) fn new(code: &Code, words: &'a dyn Fn(u64) -> bool) -> Shared<'a> {
        let f = code.function;
        let mut s = Shared {
            words,
            kin: core::array::from_fn(|i| i as u8),
            places: [Place::default(); MAX_PLACES],
            len: 0,
            waits: false,
            leaves_links: false,
            loops: List::new(),
            busy: List::new(),
            has_frame: false,
            locks: false,
            stored: List::new(),
        };
        let mut waits = Waits::default();
        code.each(|i| {
            if let Some((a, b)) = i.copies_register().or_else(|| i.derives_address()) {
                s.has_frame |= (a, b) == (RBP, RSP);
                let (a, b) = (s.kin[a as usize & 15], s.kin[b as usize & 15]);
                s.kin.iter_mut().filter(|k| **k == a).for_each(|k| *k = b);
            }
            let waits = waits.at(i);
            s.waits |= waits;
            s.leaves_links |= f.thread_id.is_some_and(|id| id.leaves_links(i));
            let changes = f.change(i).is_some();
            if waits || changes {
                s.busy.push(i.pc);
            }
            let kind = Operation::parse(i.bytes()).map(|(_, kind)| kind);
            if let Some(word) = i
                .place()
                .filter(|_| kind == Some(Kind::Store))
                .and_then(fixed)
            {
                if !s.stored.all().contains(&word) {
                    s.stored.push(word);
                }
            }
            s.locks |= changes && i.place().and_then(fixed).is_some();
            if let Some(place) = i.place().filter(|_| changes && s.len < MAX_PLACES) {
                s.places[s.len] = place;
                s.len += 1;
            }
            if let Flow::Branch(_, target) | Flow::Jump(target) = i.flow {
                if (f.start..=i.pc).contains(&target) {
                    s.loops.push((target, i.pc));
                }
            }
        });
        s.waits &= f.may_wait();
        for n in 0..s.len {
            s.places[n] = s.of_kin(s.places[n]);
        }
        s
    }

    fn of_kin(&self, p: Place) -> Place {
        Place {
            base: p.base.map(|r| self.kin[r as usize & 15]),
            index: p.index.map(|r| self.kin[r as usize & 15]),
            ..p
        }
    }

    /// Is the innermost loop around `pc` one that neither waits nor changes memory in one step?
    fn only_computes(&self, pc: u64) -> bool {
        let around = self
            .loops
            .all()
            .iter()
            .filter(|(a, b)| (*a..=*b).contains(&pc));
        let inner = around.min_by_key(|(a, b)| b - a);
        inner.is_some_and(|(a, b)| !self.busy.all().iter().any(|p| (*a..=*b).contains(p)))
    }

    /// Does it load or store what says that a thread is there?
    pub(super) fn is_thread_id(&self, f: &Function, i: &Insn) -> bool {
        let at = |id: ThreadId| i.place().is_some_and(|p| id.lies_at(&p, self.leaves_links));
        f.thread_id.is_some_and(at) && Operation::of_any(i).is_some()
    }

    /// Is this instruction to be ordered?
    pub(super) fn holds(&self, f: &Function, i: &Insn) -> bool {
        let Some((_, kind)) = Operation::parse(i.bytes()) else {
            return false;
        };
        if kind == Kind::Change {
            return f.change(i).is_some();
        }
        let Some(p) = i.place() else {
            return false;
        };
        if f.thread_id
            .is_some_and(|id| id.lies_at(&p, self.leaves_links))
        {
            return true;
        }
        match p.base {
            None if p.index.is_none() => {
                (self.words)(p.offset) || (self.locks && self.stored.all().contains(&p.offset))
            }
            Some(RSP) => false,
            Some(RBP) if self.has_frame => false,
            _ => {
                let p = self.of_kin(p);
                let places = &self.places[..self.len];
                // What lies around a word that is changed in one step is what that word is there for.
                let around = places.iter().any(|o| o.base.is_some() && o.base == p.base);
                places.contains(&p) || ((around || self.waits) && !self.only_computes(i.pc))
            }
        }
    }
}
