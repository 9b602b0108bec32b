//! Calls whose memory is a few plain stretches, which most calls' is: looked at once, hashed at once, logged at once.
//!
//! [`Call`] can say everything about any call, and walks the table anew for each question. Here the answers are kept: what the kernel
//! reads, what it can write, and whether others could touch it. The events are byte for byte those of [`super::events`].

use crate::capture::{self, Call};
use crate::thread::Block;
use crate::{guard, hash, memory, ring, sys};
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::spec::{Mem, Size};

/// Most stretches that the kernel reads, and most that it writes.
const MOST: usize = 8;
/// Longer events are written piece by piece.
const LONGEST: usize = 64 << 10;
const EFAULT: i64 = -14;

/// Something the kernel reads.
#[derive(Clone, Copy)]
struct Input {
    address: u64,
    len: usize,
    /// How much of it is shown to people, as what.
    shown: usize,
    tag: Tag,
}

/// Something the kernel can write: an argument, and how many bytes it wrote.
#[derive(Clone, Copy)]
struct Output {
    arg: usize,
    cap: Size,
    used: Size,
}

/// The memory of one call.
pub struct Parts {
    inputs: [Input; MOST],
    ins: usize,
    outputs: [Output; MOST],
    outs: usize,
    /// None of it is mapped shared.
    private: bool,
}

impl Parts {
    /// The memory of a call, where it is this plain and can be read.
    pub fn of(c: &Call) -> Option<Parts> {
        const NO_INPUT: Input = Input {
            address: 0,
            len: 0,
            shown: 0,
            tag: Tag::Input,
        };
        const NO_OUTPUT: Output = Output {
            arg: 0,
            cap: Size::Result,
            used: Size::Result,
        };
        let mut p = Parts {
            inputs: [NO_INPUT; MOST],
            ins: 0,
            outputs: [NO_OUTPUT; MOST],
            outs: 0,
            private: true,
        };
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
                    p.input(at, len, len, Tag::Path)?;
                }
                Mem::In(s) => {
                    let len = c.size(s, 0);
                    p.touches(at, len as u64);
                    p.input(at, len, capture::preview_len(c.nr, len), Tag::Input)?;
                }
                Mem::Out { cap, used } => {
                    p.touches(at, c.size(cap, 0) as u64);
                    *p.outputs.get_mut(p.outs)? = Output { arg: i, cap, used };
                    p.outs += 1;
                }
                Mem::IovecIn(n) => p.list(at, c.args[n as usize])?,
                Mem::MsghdrIn => {
                    let m = guard::read::<capture::Msghdr>(at)?;
                    p.touches(at, core::mem::size_of::<capture::Msghdr>() as u64);
                    if m.name != 0 {
                        let len = (m.name_len as usize).min(128);
                        p.touches(m.name, len as u64);
                        p.input(m.name, len, 0, Tag::Input)?;
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

    fn touches(&mut self, at: u64, len: u64) {
        self.private = self.private && memory::is_private(at, len);
    }

    fn input(&mut self, address: u64, len: usize, shown: usize, tag: Tag) -> Option<()> {
        *self.inputs.get_mut(self.ins)? = Input {
            address,
            len,
            shown,
            tag,
        };
        self.ins += 1;
        Some(())
    }

    /// An array of iovecs that is read from.
    fn list(&mut self, array: u64, count: u64) -> Option<()> {
        if count > MOST as u64 {
            return None;
        }
        let mut list = [[0u64; 2]; MOST];
        let bytes = count as usize * 16;
        let to = list.as_mut_ptr() as u64;
        // SAFETY: `list` is ours and has room for so many; the program's side is guarded.
        guard::guarded(|| unsafe { guard::copy(to, array, bytes) })?;
        self.touches(array, bytes as u64);
        for [base, len] in list.iter().take(count as usize) {
            let len = capture::part_len(*len);
            if len > 0 {
                self.touches(*base, len as u64);
                self.input(*base, len, 0, Tag::Input)?;
            }
        }
        Some(())
    }

    fn inputs(&self) -> &[Input] {
        &self.inputs[..self.ins]
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
            self.inputs().iter().fold(0, |h, i| {
                // SAFETY: guarded.
                unsafe { hash::bytes(h, i.address, i.len) }
            })
        })
    }

    /// Writes the event of a call whose result is out of no ordinary; false when [`super::events`] must.
    pub fn log(&self, t: &Block, kind: Kind, c: &Call, result: i64, input_hash: u64) -> bool {
        if result == EFAULT {
            return false;
        }
        let nargs = if kind == Kind::Exit { 0 } else { c.nargs };
        let mut sections = [(Tag::Input, 0u64, 0u64, 0usize); 2 * MOST];
        let mut n = 0;
        // As in `Call::previews`: at most two.
        for i in self.inputs() {
            if (i.tag == Tag::Path || capture::has_preview(c.nr)) && n < 2 {
                sections[n] = (i.tag, i.address, i.address, i.shown);
                n += 1;
            }
        }
        if !sys::is_error(result) {
            for o in &self.outputs[..self.outs] {
                let len = c.used(o.cap, o.used, result);
                if len > 0 {
                    sections[n] = (Tag::Output, c.args[o.arg], c.local[o.arg], len);
                    n += 1;
                }
            }
        }
        let sections = &sections[..n];
        let head = HEADER_LEN + 8 * nargs;
        let len = head + sections.iter().map(|s| section_len(s.3)).sum::<usize>();
        if len > LONGEST {
            return false;
        }
        let Some(place) = ring::in_place(len) else {
            return false;
        };
        let words = place as *mut u64;
        // SAFETY: `len` bytes of the ring from `place` on are ours to write, in whole words; the program's side is guarded.
        unsafe {
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
            (words as *mut EventHeader).write(header);
            for (i, a) in c.args.iter().enumerate().take(nargs) {
                words.add(HEADER_LEN / 8 + i).write(*a);
            }
            let mut at = place + head as u64;
            for (tag, address, _, len) in sections {
                let w = at as *mut u64;
                w.write(*address);
                w.add(1).write(*len as u64 | (*tag as u64) << 32);
                at += section_len(*len) as u64;
                if *len > 0 {
                    // Padding, where there is any.
                    (at as *mut u64).sub(1).write(0);
                }
            }
            let copied = n == 0
                || guard::guarded(|| {
                    let mut at = place + (head + SECTION_LEN) as u64;
                    for (_, _, from, len) in sections {
                        guard::copy(at, *from, *len);
                        at += section_len(*len) as u64;
                    }
                })
                .is_some();
            if !copied {
                return false;
            }
        }
        ring::publish(len);
        true
    }
}
