//! Where a value can be: in memory, or in some bytes of a register; and the registers, by their places and with what they hold.

use crate::debuggee::General;
use iced_x86::{Instruction, Register};

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// In memory.
    Memory {
        /// Its address.
        at: u64,
        /// Its bytes.
        len: u32,
    },
    /// In some bytes of a register.
    Register {
        /// The whole register: rax to r15, zmm0 to zmm31, k0 to k7.
        whole: Register,
        /// The first of its bytes, from the lowest.
        from: u32,
        /// How many.
        len: u32,
    },
}

impl Location {
    /// A register by whatever part of it has a name.
    pub fn register(part: Register) -> Location {
        let high = [Register::AH, Register::BH, Register::CH, Register::DH];
        Location::Register {
            whole: part.full_register(),
            from: u32::from(high.contains(&part)),
            len: part.size() as u32,
        }
    }

    /// Its bytes.
    pub fn len(&self) -> u32 {
        match *self {
            Location::Memory { len, .. } | Location::Register { len, .. } => len,
        }
    }

    /// Some of its bytes.
    pub fn part(&self, first: u32, count: u32) -> Location {
        match *self {
            Location::Memory { at, .. } => Location::Memory {
                at: at.wrapping_add(first.into()),
                len: count,
            },
            Location::Register { whole, from, .. } => Location::Register {
                whole,
                from: from + first,
                len: count,
            },
        }
    }

    /// Which of its bytes another one covers: the first, and how many.
    pub fn covered(&self, by: &Location) -> Option<(u32, u32)> {
        let ((mine, len), (other, other_len)) = match (*self, *by) {
            (Location::Memory { at, len }, Location::Memory { at: b, len: n }) => {
                ((at, len), (b, n))
            }
            (
                Location::Register { whole, from, len },
                Location::Register {
                    whole: w,
                    from: f,
                    len: n,
                },
            ) if whole == w => ((from.into(), len), (f.into(), n)),
            _ => return None,
        };
        let first = mine.max(other);
        let end = (mine.saturating_add(len.into())).min(other.saturating_add(other_len.into()));
        (first < end).then(|| ((first - mine) as u32, (end - first) as u32))
    }
}

/// What a register holds for an instruction that begins with these: of segment registers, where the segment begins.
pub fn value(i: &Instruction, g: &General, register: Register) -> Option<u64> {
    let word = match register {
        Register::FS => return Some(g.fs_base),
        Register::ES | Register::CS | Register::SS | Register::DS | Register::GS => return Some(0),
        Register::RIP => return Some(i.next_ip()),
        _ => g.r[index(register.full_register())?],
    };
    let bits = 8 * register.size().min(8) as u32;
    Some(word << (64 - bits) >> (64 - bits))
}

/// The general registers, as they lie in [`General::r`].
const GENERAL: [Register; 16] = [
    Register::RAX,
    Register::RBX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Place of a general register in [`General::r`].
pub fn index(whole: Register) -> Option<usize> {
    GENERAL.iter().position(|r| *r == whole)
}

/// The general register with this place.
pub fn general(place: usize) -> Option<Register> {
    GENERAL.get(place).copied()
}
