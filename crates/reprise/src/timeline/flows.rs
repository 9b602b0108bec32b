//! What goes from one thread to another: a wake-up, bytes, a lock, a life. A flow leads from where something was given (released, written)
//! to where another thread next got it.

use super::channels::{Channel, Descriptors, End};
use reprise_abi::effect::Effect as Does;
use reprise_abi::event::{Event, EventHeader, Kind, Tag};
use reprise_abi::futex::{self, Effect, FUTEX_PRIVATE_FLAG};
use reprise_abi::order::{Entry, EntryKind, ENTRY_LEN};
use reprise_abi::syscalls::{self, nr};
use std::collections::{HashMap, VecDeque};

/// Most wake-ups of one futex that are remembered.
const MAX_WAKES: usize = 16;
/// Most operations on one object that are remembered.
const MAX_OPERATIONS: usize = 4;
/// Most futexes, channels and objects, each, that are remembered. Beyond it, those that were used least lately are forgotten.
const MAX_OBJECTS: usize = 1 << 16;

const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;

/// An event of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number.
    pub event: u64,
    /// Whose it is.
    pub thread: usize,
}

/// What went from one thread to another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Where it was given.
    pub from: Place,
    /// Where it was got.
    pub to: Place,
    /// What it is: all flows of one lock or pipe have the same name.
    pub name: String,
    /// The kind of thing.
    pub kind: &'static str,
}

impl Flow {
    /// A thread or process begins, that was made there.
    pub fn birth(from: Place, to: Place) -> Flow {
        Flow {
            from,
            to,
            name: "birth".into(),
            kind: "birth",
        }
    }
}

/// A call that is over.
pub(super) struct Call<'a> {
    /// Where it ended.
    pub place: Place,
    /// Whose it is.
    pub process: usize,
    /// The event at which it began.
    pub began: u64,
    /// Its arguments.
    pub args: &'a [u64; 6],
    /// The event that has its result.
    pub event: &'a Event<'a>,
}

/// A futex, as far as addresses tell: those that processes share are told apart by address alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Futex {
    process: Option<usize>,
    address: u64,
}

/// A wake-up that sleepers may still have to come back from.
struct Wake {
    place: Place,
    process: usize,
    /// How many it woke.
    left: u64,
}

/// An object of the `order` engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Object {
    process: usize,
    shard: bool,
    name: u32,
}

/// What is known of an object's operations.
#[derive(Default)]
struct Operations {
    /// The last ones, in order of their numbers, and where they were made.
    last: Vec<(u64, Place)>,
    /// The last flow: one is enough between two events.
    shown: Option<(Place, Place)>,
}

/// Follows what flows.
#[derive(Default)]
pub(super) struct Flows {
    descriptors: HashMap<usize, Descriptors>,
    /// Descriptors of processes that have not begun, by slot.
    unborn: HashMap<u16, Descriptors>,
    /// What the call that a thread is in reads or writes.
    ends: HashMap<usize, End>,
    /// Where something was written that nobody has read yet.
    written: HashMap<Channel, Place>,
    wakes: HashMap<Futex, VecDeque<Wake>>,
    /// Words that the kernel clears at the ends of threads, by slot.
    cleared: HashMap<u16, u64>,
    operations: HashMap<Object, Operations>,
    /// Locks that changed hands in another order than the events stand in the trace.
    pub backward: u64,
}

impl Flows {
    /// A call begins that may take long.
    pub fn begins(&mut self, at: Place, process: usize, h: &EventHeader, args: &[u64; 6]) {
        let call = u64::from(h.detail);
        if !(reads(call) || writes(call)) {
            return;
        }
        let end = self.descriptors.get(&process).and_then(|d| d.get(args[0]));
        let Some(end) = end else { return };
        self.ends.insert(at.thread, end);
        if let (true, Some(channel)) = (writes(call), end.writes) {
            // Who reads may be back before the writer is.
            self.write(channel, at);
        }
    }

    /// A call is over.
    pub fn completed(&mut self, call: &Call, flows: &mut Vec<Flow>) {
        let h = &call.event.header;
        match u64::from(h.detail) {
            nr::FUTEX => self.futex(call, flows),
            nr if reads(nr) || writes(nr) => self.transfer(call, flows),
            _ => {
                let own = self.descriptors.entry(call.process).or_default();
                own.follow(call.place.event, call.args, call.event);
            }
        }
    }

    fn transfer(&mut self, call: &Call, flows: &mut Vec<Flow>) {
        let h = &call.event.header;
        let end = match call.event.kind {
            Kind::Exit => self.ends.remove(&call.place.thread),
            _ => self
                .descriptors
                .get(&call.process)
                .and_then(|d| d.get(call.args[0])),
        };
        let Some(end) = end else { return };
        let began = Place {
            event: call.began,
            thread: call.place.thread,
        };
        if writes(u64::from(h.detail)) {
            let Some(channel) = end.writes else { return };
            match h.value > 0 {
                true if call.event.kind == Kind::Syscall => self.write(channel, began),
                true => {}
                // Nothing was written after all.
                false if self.written.get(&channel) == Some(&began) => {
                    self.written.remove(&channel);
                }
                false => {}
            }
        } else if let (true, Some(channel)) = (h.value > 0, end.reads) {
            let from = self.written.remove(&channel);
            flows.extend(
                from.filter(|f| f.thread != call.place.thread)
                    .map(|from| Flow {
                        from,
                        to: call.place,
                        name: format!("{} of event {}", channel.what, channel.made),
                        kind: channel.what,
                    }),
            );
        }
    }

    fn write(&mut self, channel: Channel, at: Place) {
        forget(&mut self.written, |p| p.event);
        self.written.insert(channel, at);
    }

    fn futex(&mut self, call: &Call, flows: &mut Vec<Flow>) {
        let (args, result) = (call.args, call.event.header.value);
        let Some(operation) = futex::lookup(args[1]) else {
            return;
        };
        let private = args[1] as u32 & FUTEX_PRIVATE_FLAG != 0;
        let at = |address| Futex {
            process: private.then_some(call.process),
            address,
        };
        match operation.effect {
            Effect::Wait if result == 0 => {
                let from = self.woken(at(args[0]), call);
                flows.extend(from.map(|from| Flow {
                    from,
                    to: call.place,
                    name: format!("futex {:#x}", args[0]),
                    kind: "futex",
                }));
            }
            Effect::Wake if result >= 0 => {
                // Who unlocks one with priority inheritance is not told whether somebody waited.
                let woken = if operation.pi { 1 } else { result as u64 };
                let begun = Place {
                    event: call.began,
                    ..call.place
                };
                self.wake(at(args[0]), begun, call.process, woken);
                if operation.nr == futex::FUTEX_WAKE_OP {
                    self.wake(at(args[4]), begun, call.process, woken);
                }
            }
            _ => {}
        }
    }

    fn wake(&mut self, futex: Futex, place: Place, process: usize, left: u64) {
        if left == 0 {
            return;
        }
        forget(&mut self.wakes, |w| w.back().map_or(0, |w| w.place.event));
        let wakes = self.wakes.entry(futex).or_default();
        if wakes.len() == MAX_WAKES {
            wakes.pop_front();
        }
        wakes.push_back(Wake {
            place,
            process,
            left,
        });
    }

    /// Who woke the thread that comes back from this call: somebody who did it while the thread slept, of its own process if there is one.
    fn woken(&mut self, futex: Futex, call: &Call) -> Option<Place> {
        let wakes = self.wakes.get_mut(&futex)?;
        let fits = |w: &Wake| w.place.event > call.began && w.place.thread != call.place.thread;
        let own = wakes
            .iter()
            .position(|w| fits(w) && w.process == call.process);
        let found = own.or_else(|| wakes.iter().position(fits))?;
        let wake = &mut wakes[found];
        let place = wake.place;
        wake.left -= 1;
        if wake.left == 0 {
            wakes.remove(found);
        }
        if wakes.is_empty() {
            self.wakes.remove(&futex);
        }
        Some(place)
    }

    /// Operations on objects of the `order` engine: a lock that another thread had before.
    pub fn sync(&mut self, at: Place, process: usize, event: &Event, flows: &mut Vec<Flow>) {
        let entries = event.sections().filter(|s| s.tag == Tag::Entries);
        for bytes in entries.flat_map(|s| s.bytes.chunks_exact(ENTRY_LEN)) {
            let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            let Some(entry) = Entry::from_words([word(0), word(8)]) else {
                continue;
            };
            let shard = match entry.kind {
                EntryKind::Passed => false,
                EntryKind::Ordered => true,
                _ => continue,
            };
            let object = Object {
                process,
                shard,
                name: entry.object,
            };
            flows.extend(self.operation(object, entry.value, at));
        }
    }

    /// The flow to this operation from the one before it that another thread made, as far as the trace has that one before it: events of
    /// `order` stand in an order that agrees with that of calls, and not always with that of each lock.
    fn operation(&mut self, object: Object, value: u64, to: Place) -> Option<Flow> {
        forget(&mut self.operations, |o| {
            o.last.iter().map(|(_, p)| p.event).max().unwrap_or(0)
        });
        let Operations { last, shown } = self.operations.entry(object).or_default();
        self.backward += u64::from(last.last().is_some_and(|(number, _)| *number > value));
        let at = last.partition_point(|(number, _)| *number < value);
        let before = at.checked_sub(1).map(|i| last[i].1);
        last.insert(at, (value, to));
        if last.len() > MAX_OPERATIONS {
            last.remove(0);
        }
        let from = before.filter(|from| from.thread != to.thread && from.event < to.event)?;
        if shown.replace((from, to)) == Some((from, to)) {
            return None;
        }
        let (kind, name) = match object.shard {
            true => ("shard", format!("shard {}", object.name)),
            false => ("lock", format!("lock {:x}", object.name)),
        };
        Some(Flow {
            from,
            to,
            name,
            kind,
        })
    }

    /// A thread or process is made that will have the slot `child`.
    pub fn forks(&mut self, child: u16, process: usize, event: &Event) {
        let is_clone = u64::from(event.header.detail) == nr::CLONE;
        let flags = if is_clone { event.arg(0) } else { 0 };
        if flags & CLONE_THREAD == 0 {
            let own = self.descriptors.get(&process);
            self.unborn.insert(child, own.cloned().unwrap_or_default());
        } else if flags & CLONE_CHILD_CLEARTID != 0 {
            self.cleared.insert(child, event.arg(3));
        }
    }

    /// A process begins that was made for this slot.
    pub fn process_begins(&mut self, slot: u16, process: usize) {
        self.cleared.remove(&slot);
        let inherited = self.unborn.remove(&slot).unwrap_or_default();
        self.descriptors.insert(process, inherited);
    }

    /// The process became another program.
    pub fn execs(&mut self, process: usize) {
        if let Some(own) = self.descriptors.get_mut(&process) {
            own.exec();
        }
    }

    /// The process ended.
    pub fn process_ends(&mut self, process: usize) {
        self.descriptors.remove(&process);
    }

    /// The thread ends: the kernel clears its word, and wakes who waits for that.
    pub fn thread_ends(&mut self, at: Place, process: usize, slot: u16) {
        self.ends.remove(&at.thread);
        if let Some(address) = self.cleared.remove(&slot) {
            let futex = Futex {
                process: None,
                address,
            };
            self.wake(futex, at, process, 1);
        }
    }
}

fn reads(call: u64) -> bool {
    let is_read = |e| matches!(e, Does::Reads(..) | Does::Receives(_));
    syscalls::lookup(call).is_some_and(|c| c.counts_bytes() && is_read(c.effect))
}

fn writes(call: u64) -> bool {
    let is_write = |e| matches!(e, Does::Writes(..) | Does::Sends(_));
    syscalls::lookup(call).is_some_and(|c| c.counts_bytes() && is_write(c.effect))
}

/// Before one more is remembered: forgets the half of a full map that was used least lately.
fn forget<K, V>(map: &mut HashMap<K, V>, used: impl Fn(&V) -> u64) {
    if map.len() < MAX_OBJECTS {
        return;
    }
    let mut times: Vec<u64> = map.values().map(&used).collect();
    let middle = times.len() / 2;
    let (_, limit, _) = times.select_nth_unstable(middle);
    let limit = *limit;
    map.retain(|_, v| used(v) > limit);
}
