//! Where an instruction ends, by tables: a tenth of the time of a whole decoding ([`crate::decode`]), which is still asked about what the
//! tables leave open (Intel SDM 2, chapter 2 and appendix A; 64-bit mode).
//!
//! Bytes that are no instruction may have a length here: what looks for something in code decodes wherever it found it.

/// Bytes that are looked at: those of the longest instruction, and one.
pub const WINDOW: usize = 16;
/// Most prefixes before the opcode that the tables are good for.
const MAX_PREFIXES: usize = 5;

/// A ModRM byte follows the opcode.
const MODRM: u8 = 0x80;
/// What follows that, in the low bits: a number of bytes, or one of these.
const IMMEDIATE: u8 = 0x0f;
/// 4 bytes, 2 with the operand-size prefix.
const WORD: u8 = 4;
/// As many bytes as the operand has: `mov` to a register.
const WHOLE: u8 = 5;
/// 4 bytes; processors differ in what the operand-size prefix does.
const BRANCH: u8 = 6;
/// As the ModRM byte says: `test` has one of 1 byte, the others of the group none.
const TEST_BYTE: u8 = 7;
/// As above, [`WORD`].
const TEST_WORD: u8 = 8;
/// Not said here.
const OPEN: u8 = 0x40;
const PREFIX: u8 = 0x41;
const REX: u8 = 0x42;
const ESCAPE: u8 = 0x43;
const VEX2: u8 = 0x44;
const VEX3: u8 = 0x45;
const EVEX: u8 = 0x46;

const REX_W: u8 = 8;

/// Sets a range of a table.
const fn set(mut table: [u8; 256], first: usize, last: usize, class: u8) -> [u8; 256] {
    let mut i = first;
    while i <= last {
        table[i] = class;
        i += 1;
    }
    table
}

/// Opcodes of one byte.
static ONE: [u8; 256] = {
    let mut t = [OPEN; 256];
    // add, or, adc, sbb, and, sub, xor, cmp
    let mut i = 0;
    while i < 0x40 {
        t = set(t, i, i + 3, MODRM);
        t[i + 4] = 1;
        t[i + 5] = WORD;
        i += 8;
    }
    t[0x0f] = ESCAPE;
    t = set(t, 0x40, 0x4f, REX);
    t = set(t, 0x50, 0x5f, 0);
    t[0x62] = EVEX;
    t[0x63] = MODRM;
    t[0x68] = WORD;
    t[0x69] = MODRM | WORD;
    t[0x6a] = 1;
    t[0x6b] = MODRM | 1;
    t = set(t, 0x6c, 0x6f, 0);
    t = set(t, 0x70, 0x7f, 1);
    t[0x80] = MODRM | 1;
    t[0x81] = MODRM | WORD;
    t[0x83] = MODRM | 1;
    t = set(t, 0x84, 0x8e, MODRM);
    t = set(t, 0x90, 0x99, 0);
    t = set(t, 0x9b, 0x9f, 0);
    t = set(t, 0xa4, 0xa7, 0);
    t[0xa8] = 1;
    t[0xa9] = WORD;
    t = set(t, 0xaa, 0xaf, 0);
    t = set(t, 0xb0, 0xb7, 1);
    t = set(t, 0xb8, 0xbf, WHOLE);
    t = set(t, 0xc0, 0xc1, MODRM | 1);
    t[0xc2] = 2;
    t[0xc3] = 0;
    t[0xc4] = VEX3;
    t[0xc5] = VEX2;
    t[0xc6] = MODRM | 1;
    t[0xc7] = MODRM | WORD;
    t[0xc9] = 0;
    t[0xcc] = 0;
    t = set(t, 0xd0, 0xd3, MODRM);
    t = set(t, 0xd8, 0xdf, MODRM);
    t = set(t, 0xe8, 0xe9, BRANCH);
    t[0xeb] = 1;
    t[0xf4] = 0;
    t[0xf5] = 0;
    t[0xf6] = MODRM | TEST_BYTE;
    t[0xf7] = MODRM | TEST_WORD;
    t = set(t, 0xf8, 0xfd, 0);
    t = set(t, 0xfe, 0xff, MODRM);
    let prefixes = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf0, 0xf2, 0xf3];
    let mut i = 0;
    while i < prefixes.len() {
        t[prefixes[i]] = PREFIX;
        i += 1;
    }
    // They have no meaning in this mode.
    let none = [
        0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f,
    ];
    let mut i = 0;
    while i < none.len() {
        t[none[i]] = OPEN;
        i += 1;
    }
    t
};

/// Opcodes behind 0f.
static TWO: [u8; 256] = {
    let mut t = [OPEN; 256];
    t = set(t, 0x00, 0x03, MODRM);
    t[0x05] = 0;
    t[0x0b] = 0;
    t[0x0d] = MODRM;
    t = set(t, 0x10, 0x1f, MODRM);
    t = set(t, 0x28, 0x2f, MODRM);
    t[0x31] = 0;
    t = set(t, 0x40, 0x6f, MODRM);
    t = set(t, 0x70, 0x73, MODRM | 1);
    t = set(t, 0x74, 0x76, MODRM);
    t[0x77] = 0;
    t = set(t, 0x7c, 0x7f, MODRM);
    t = set(t, 0x80, 0x8f, BRANCH);
    t = set(t, 0x90, 0x9f, MODRM);
    t[0xa2] = 0;
    t[0xa3] = MODRM;
    t[0xa4] = MODRM | 1;
    t[0xa5] = MODRM;
    t[0xab] = MODRM;
    t[0xac] = MODRM | 1;
    t = set(t, 0xad, 0xaf, MODRM);
    t = set(t, 0xb0, 0xb1, MODRM);
    t = set(t, 0xb3, 0xb3, MODRM);
    t = set(t, 0xb6, 0xb8, MODRM);
    t[0xba] = MODRM | 1;
    t = set(t, 0xbb, 0xc1, MODRM);
    t[0xc2] = MODRM | 1;
    t[0xc3] = MODRM;
    t = set(t, 0xc4, 0xc6, MODRM | 1);
    t[0xc7] = MODRM;
    t = set(t, 0xc8, 0xcf, 0);
    t = set(t, 0xd0, 0xfe, MODRM);
    t
};

/// Does an opcode of VEX and EVEX in the map of 0f have an immediate byte?
const fn has_byte(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6)
}

/// Bytes of a ModRM byte, its SIB byte and its displacement; the displacement of a SIB byte without base is not in it.
static ADDRESS: [u8; 256] = {
    let mut t = [1; 256];
    let mut i = 0;
    while i < 0xc0 {
        let (mode, rm) = (i >> 6, i & 7);
        t[i] += (rm == 4) as u8;
        t[i] += match (mode, rm) {
            (0, 5) | (2, _) => 4,
            (1, _) => 1,
            _ => 0,
        };
        i += 1;
    }
    t
};

/// Instructions of one opcode byte that are nothing but what their length says, by the opcode: their bytes without those of an address, and
/// [`MODRM`]. 0 for all others.
static PLAIN: [u8; 256] = {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        t[i] = match ONE[i] & !MODRM {
            n @ 0..=WORD => ONE[i] & MODRM | (1 + n),
            BRANCH => 5,
            _ => 0,
        };
        i += 1;
    }
    // `xchg` with memory, jumps in the place of system calls, and `mov` of constants.
    t[0x86] = 0;
    t[0x87] = 0;
    t[0xe9] = 0;
    t[0xc7] = 0;
    t
};

/// An instruction of a plain form.
#[derive(Clone, Copy)]
pub struct Plain {
    /// Its bytes.
    pub len: usize,
    /// Its ModRM byte, and the four that follow; 0 if it has none.
    pub address: u64,
}

impl Plain {
    /// The displacement of its memory operand, if it counts from a register and is not 0.
    #[inline(always)]
    pub fn displacement(&self) -> Option<i32> {
        let at = self.address >> (8 + 8 * (self.address & 7 == 4) as u32);
        match self.address & 0xc0 {
            0x40 => Some(at as i8 as i32),
            0x80 => Some(at as i32),
            _ => None,
        }
    }

    /// The address of its memory operand, if that takes no register; or, with a REX prefix, what is added to an index, which is told from it only
    /// by decoding. `end`: the address behind the instruction.
    #[inline(always)]
    pub fn fixed(&self, end: u64) -> Option<u64> {
        if self.address & 0xc7 == 5 {
            return Some(end.wrapping_add((self.address >> 8) as i32 as u64));
        }
        (self.address & 0x3fc7 == 0x2504).then_some((self.address >> 16) as i32 as u64)
    }

    /// The instruction at the beginning of these bytes, if it is one with at most a REX prefix before an opcode of one byte, and doesn't
    /// change memory in one step, wait, or load a constant.
    #[inline(always)]
    pub fn of(code: &[u8; WINDOW]) -> Option<Plain> {
        let word = u64::from_le_bytes(*code.first_chunk().unwrap_or(&[0; 8]));
        let rex = word & 0xf0 == 0x40;
        let word = word >> (8 * rex as u32);
        let class = PLAIN[word as usize & 0xff];
        if class == 0 {
            return None;
        }
        let address = match class & MODRM {
            0 => 0,
            _ => word >> 8,
        };
        let bare = address & 0x07c7 == 0x0504;
        let after = match class & MODRM {
            0 => 0,
            _ => ADDRESS[address as usize & 0xff] as usize + 4 * bare as usize,
        };
        Some(Plain {
            len: rex as usize + (class & !MODRM) as usize + after,
            address,
        })
    }
}

/// An instruction, as far as the tables tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Its bytes.
    pub len: usize,
    /// Offset of the last byte of its opcode; 0 with VEX and EVEX.
    pub opcode: usize,
    /// Offset of the ModRM byte, or 0.
    pub modrm: usize,
    /// The opcode is behind 0f.
    pub two: bool,
    /// It has a LOCK prefix.
    pub locked: bool,
}

impl Shape {
    /// The shape of the instruction at the beginning of these bytes; `None` where the tables leave it open.
    #[inline(always)]
    pub fn of(code: &[u8; WINDOW]) -> Option<Shape> {
        let mut s = Shape::default();
        let (mut at, mut narrow) = (0, false);
        let mut class = ONE[code[0] as usize];
        while class == PREFIX {
            narrow |= code[at] == 0x66;
            s.locked |= code[at] == 0xf0;
            at += 1;
            if at > MAX_PREFIXES {
                return None;
            }
            class = ONE[code[at] as usize];
        }
        let mut rex = 0;
        if class == REX {
            rex = code[at];
            at += 1;
            class = ONE[code[at] as usize];
        }
        if class == ESCAPE {
            at += 1;
            s.two = true;
            class = match code[at] {
                0x38 => {
                    at += 1;
                    MODRM
                }
                0x3a => {
                    at += 1;
                    MODRM | 1
                }
                opcode => TWO[opcode as usize],
            };
        }
        s.opcode = at;
        if class & OPEN != 0 {
            // Behind other prefixes these are none.
            if at != 0 {
                return None;
            }
            (at, class) = vector(code, class)?;
        }
        at += 1;
        if class & MODRM != 0 {
            s.modrm = at;
            at += address_len(code, at);
        }
        at += match class & IMMEDIATE {
            n @ 0..=2 => n as usize,
            WORD => word(narrow, rex),
            WHOLE if rex & REX_W != 0 => 8,
            WHOLE => word(narrow, rex),
            BRANCH if narrow => return None,
            BRANCH => 4,
            _ if code[s.modrm] >> 3 & 7 > 1 => 0,
            TEST_BYTE => 1,
            _ => word(narrow, rex),
        };
        s.len = at;
        Some(s)
    }

    /// Four bytes of the code, from `at` on; behind its end it begins anew.
    #[inline]
    pub fn word(code: &[u8; WINDOW], at: usize) -> i32 {
        let byte = |n: usize| code[(at + n) % WINDOW];
        i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
    }

    /// The displacement of its memory operand, if there is one that is not 0.
    #[inline]
    pub fn displacement(&self, code: &[u8; WINDOW]) -> Option<i32> {
        let modrm = code[self.modrm];
        let at = self.modrm + 1 + (modrm & 7 == 4) as usize;
        match modrm & 0xc0 {
            0x40 => Some(code[at % WINDOW] as i8 as i32),
            0x80 => Some(Shape::word(code, at)),
            _ => None,
        }
    }

    /// The address of its memory operand at `pc`, if that takes no register (as [`Plain::fixed`] tells it).
    #[inline]
    pub fn fixed(&self, pc: u64, code: &[u8; WINDOW]) -> Option<u64> {
        match (code[self.modrm] & 0xc7, code[(self.modrm + 1) % WINDOW]) {
            (5, _) => {
                let d = Shape::word(code, self.modrm + 1) as i64 as u64;
                Some((pc + self.len as u64).wrapping_add(d))
            }
            (4, sib) if sib & 0x3f == 0x25 => Some(Shape::word(code, self.modrm + 2) as i64 as u64),
            _ => None,
        }
    }
}

/// Bytes of an immediate operand.
#[inline(always)]
fn word(narrow: bool, rex: u8) -> usize {
    match narrow && rex & REX_W == 0 {
        true => 2,
        false => 4,
    }
}

/// Bytes of the ModRM byte at `at`, its SIB byte and its displacement.
#[inline(always)]
fn address_len(code: &[u8; WINDOW], at: usize) -> usize {
    let modrm = code[at % WINDOW];
    let bare = modrm & 0xc7 == 4 && code[(at + 1) % WINDOW] & 7 == 5;
    ADDRESS[modrm as usize] as usize + 4 * bare as usize
}

/// Offset of the opcode behind a VEX or EVEX prefix, and what follows it.
fn vector(code: &[u8; WINDOW], class: u8) -> Option<(usize, u8)> {
    let (opcode, map) = match class {
        VEX2 => (2, 1),
        VEX3 => (3, code[1] & 0x1f),
        EVEX => (4, code[1] & 7),
        _ => return None,
    };
    let class = match (map, code[opcode]) {
        (1, 0x77) => 0,
        (1, o) if has_byte(o) => MODRM | 1,
        (1 | 2, _) => MODRM,
        (3, _) => MODRM | 1,
        _ => return None,
    };
    Some((opcode, class))
}

#[cfg(test)]
mod tests;
