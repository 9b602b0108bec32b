//! Calls whose memory is a few plain stretches, which most calls' is: looked at once, hashed at once, logged at once.
//!
//! [`Call`] can say everything about any call, and walks the table anew for each question. Here the answers are kept: what the kernel
//! reads, what it can write, and whether others could touch it. The events are byte for byte those of [`crate::log::events`].

use crate::log::ring;
use crate::machine::{guard, hash, sys};
use crate::memory;
use crate::memory::capture;
use crate::memory::capture::Call;
use crate::thread::Block;
use core::mem::MaybeUninit;
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::spec::{Mem, Size};

/// Most stretches that the kernel reads.
const MOST: usize = 8;
/// Most arguments to which the kernel writes.
const MOST_WRITTEN: usize = 2;
/// Longer events are written piece by piece.
const LONGEST: usize = 64 << 10;

/// Something the kernel reads.
#[derive(Clone, Copy)]
struct Input {
    address: u64,
    len: usize,
    /// How much of it is shown to people, as what.
    shown: Option<usize>,
    tag: Tag,
}

/// Something the kernel can write: an argument, and how many bytes it wrote.
#[derive(Clone, Copy)]
struct Output {
    arg: usize,
    cap: Size,
    used: Size,
}

/// Most inputs that are shown to people.
const MOST_SHOWN: usize = 2;

/// A section of an event.
#[derive(Clone, Copy)]
struct Section {
    tag: Tag,
    address: u64,
    from: u64,
    len: usize,
}

impl Section {
    const NONE: Section = Section {
        tag: Tag::Output,
        address: 0,
        from: 0,
        len: 0,
    };
}

/// The memory of one call.
pub struct Parts {
    /// The first `ins` of these are filled.
    inputs: [MaybeUninit<Input>; MOST],
    ins: usize,
    /// The first `outs` of these are filled.
    outputs: [MaybeUninit<Output>; MOST_WRITTEN],
    outs: usize,
    /// None of it is mapped shared.
    private: bool,
}

impl Parts {
    /// Of nothing yet; for [`Parts::find`].
    pub const fn empty() -> Parts {
        Parts {
            inputs: [const { MaybeUninit::uninit() }; MOST],
            ins: 0,
            outputs: [const { MaybeUninit::uninit() }; MOST_WRITTEN],
            outs: 0,
            private: true,
        }
    }

    /// The memory of a call, where it is this plain and can be read. Filled in place: to copy it would cost more than all the rest.
    pub fn find(&mut self, c: &Call) -> Option<&Parts> {
        let p = self;
        for i in 0..c.nargs {
            let at = c.args[i];
            if at == 0 {
                continue;
            }
            match c.mem[i] {
                Mem::None => {}
                Mem::Path => {
                    let len = guard::string_len(at, capture::MAX_PATH)?;
                    p.touches(at, len as u64 + 1);
                    p.input(at, len, Some(len), Tag::Path)?;
                }
                Mem::In(s) => {
                    let len = c.size(s, 0);
                    p.touches(at, len as u64);
                    p.input(at, len, capture::preview_len(c.nr, len), Tag::Input)?;
                }
                Mem::Out { cap, used } => {
                    p.touches(at, c.size(cap, 0) as u64);
                    p.outputs
                        .get_mut(p.outs)?
                        .write(Output { arg: i, cap, used });
                    p.outs += 1;
                }
                Mem::IovecIn(n) => p.list(at, c.args[n as usize])?,
                Mem::MsghdrIn => {
                    let m = guard::read::<capture::Msghdr>(at)?;
                    p.touches(at, core::mem::size_of::<capture::Msghdr>() as u64);
                    if m.name != 0 {
                        let len = (m.name_len as usize).min(128);
                        p.touches(m.name, len as u64);
                        p.input(m.name, len, None, Tag::Input)?;
                    }
                    p.list(m.iov, m.iov_len)?;
                    if m.control != 0 {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        Some(p)
    }

    #[inline]
    fn touches(&mut self, at: u64, len: u64) {
        self.private = self.private && memory::is_private(at, len);
    }

    fn input(&mut self, address: u64, len: usize, shown: Option<usize>, tag: Tag) -> Option<()> {
        self.inputs.get_mut(self.ins)?.write(Input {
            address,
            len,
            shown,
            tag,
        });
        self.ins += 1;
        Some(())
    }

    /// An array of iovecs that is read from.
    fn list(&mut self, array: u64, count: u64) -> Option<()> {
        if count > MOST as u64 {
            return None;
        }
        let mut list = [const { MaybeUninit::<[u64; 2]>::uninit() }; MOST];
        let bytes = count as usize * 16;
        let to = list.as_mut_ptr() as u64;
        // SAFETY: `list` is ours and has room for so many; the program's side is guarded.
        guard::guarded(|| unsafe { guard::copy(to, array, bytes) })?;
        self.touches(array, bytes as u64);
        for part in list.iter().take(count as usize) {
            // SAFETY: so many were copied.
            let [base, len] = unsafe { part.assume_init() };
            let len = capture::part_len(len);
            if len > 0 {
                self.touches(base, len as u64);
                self.input(base, len, None, Tag::Input)?;
            }
        }
        Some(())
    }

    fn inputs(&self) -> impl Iterator<Item = &Input> {
        // SAFETY: so many are filled.
        self.inputs
            .iter()
            .take(self.ins)
            .map(|i| unsafe { i.assume_init_ref() })
    }

    fn outputs(&self) -> impl Iterator<Item = &Output> {
        // SAFETY: so many are filled.
        self.outputs
            .iter()
            .take(self.outs)
            .map(|o| unsafe { o.assume_init_ref() })
    }

    /// Is none of this memory mapped shared?
    pub fn are_private(&self) -> bool {
        self.private
    }

    /// As [`Call::input_hash`]; `None` when some of it can't be read.
    pub fn input_hash(&self) -> Option<u64> {
        if self.ins == 0 {
            return Some(0);
        }
        guard::guarded(|| {
            self.inputs().fold(0, |h, i| {
                // SAFETY: guarded.
                unsafe { hash::input(h, i.address, i.len) }
            })
        })
    }

    /// Writes the event of a call whose result is out of no ordinary; false when [`crate::log::events`] must.
    pub fn log(&self, t: &Block, kind: Kind, c: &Call, result: i64, input_hash: u64) -> bool {
        if capture::writes_before_failing(c.nr, result) {
            return false;
        }
        let nargs = if kind == Kind::Exit { 0 } else { c.nargs };
        let mut sections = [Section::NONE; MOST_SHOWN + MOST_WRITTEN];
        let mut n = 0;
        let mut len = HEADER_LEN + 8 * nargs;
        let mut put = |s: Section| {
            len += section_len(s.len);
            sections[n] = s;
            n += 1;
        };
        // As in `Call::previews`.
        let shown = self.inputs().filter_map(|i| Some((i, i.shown?)));
        for (i, len) in shown.take(MOST_SHOWN) {
            put(Section {
                tag: i.tag,
                address: i.address,
                from: i.address,
                len,
            });
        }
        if !sys::is_error(result) {
            for o in self.outputs() {
                let len = c.used(o.cap, o.used, result);
                let (address, asked) = (c.args[o.arg], c.size(o.cap, 0));
                if address == c.local[o.arg] && capture::may_be_torn(address, len, asked) {
                    return false;
                }
                if len > 0 {
                    put(Section {
                        tag: Tag::Output,
                        address: c.args[o.arg],
                        from: c.local[o.arg],
                        len,
                    });
                }
            }
        }
        if len > LONGEST {
            return false;
        }
        let Some(place) = ring::in_place(len) else {
            return false;
        };
        let words = place as *mut u64;
        let header = EventHeader {
            len: len as u32,
            kind: kind as u8,
            nargs: nargs as u8,
            slot: t.slot as u16,
            detail: c.nr as u32,
            value: result,
            input_hash,
            ..EventHeader::default()
        };
        // SAFETY: `len` bytes of the ring from `place` on are ours to write, in whole words.
        unsafe {
            (words as *mut EventHeader).write(header);
            for (i, a) in c.args.iter().enumerate().take(nargs) {
                words.add(HEADER_LEN / 8 + i).write(*a);
            }
        }
        let mut at = place + (HEADER_LEN + 8 * nargs) as u64;
        let put_sections = || {
            for s in &sections[..n] {
                let next = at + section_len(s.len) as u64;
                // SAFETY: as above; the program's side is guarded.
                unsafe {
                    // Padding, where there is any.
                    (next as *mut u64).sub(1).write(0);
                    (at as *mut u64).write(s.address);
                    let tagged = s.len as u64 | (s.tag as u64) << 32;
                    (at as *mut u64).add(1).write(tagged);
                    guard::copy(at + SECTION_LEN as u64, s.from, s.len);
                }
                at = next;
            }
        };
        if n > 0 && guard::guarded(put_sections).is_none() {
            return false;
        }
        ring::publish(len);
        true
    }
}
