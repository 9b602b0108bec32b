//! Classic BPF as seccomp has it (`seccomp_check_filter` in kernel/seccomp.c): what a filter says of a call.
//!
//! Filters that come here have passed the kernel's own check, or will fail there; every access is checked all the same.

/// `struct seccomp_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Number of the call.
    pub nr: u32,
    /// Audit architecture.
    pub arch: u32,
    /// Address behind the call's instruction.
    pub pc: u64,
    /// Arguments.
    pub args: [u64; 6],
}

/// Bytes of it.
pub const DATA_LEN: u32 = core::mem::size_of::<Data>() as u32;
const _: () = assert!(DATA_LEN == 64);

impl Data {
    /// The 32-bit word at an offset.
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |w: u64| {
            if offset & 4 == 0 {
                w as u32
            } else {
                (w >> 32) as u32
            }
        };
        match offset {
            _ if offset % 4 != 0 => None,
            0 => Some(self.nr),
            4 => Some(self.arch),
            8 | 12 => Some(half(self.pc)),
            16..=60 => Some(half(self.args[(offset as usize - 16) / 8])),
            _ => None,
        }
    }
}

/// An instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a test is true.
    pub jt: u8,
    /// Instructions to skip when it is false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl Instruction {
    /// From its eight bytes.
    pub fn from_word(w: u64) -> Instruction {
        Instruction {
            code: w as u16,
            jt: (w >> 16) as u8,
            jf: (w >> 24) as u8,
            k: (w >> 32) as u32,
        }
    }

    /// As eight bytes.
    pub fn to_word(self) -> u64 {
        self.code as u64 | (self.jt as u64) << 16 | (self.jf as u64) << 24 | (self.k as u64) << 32
    }
}

const CLASS: u16 = 7;
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
/// The operand is X, not k.
const X: u16 = 8;
/// How a load finds its word.
const MODE: u16 = 0xe0;
const IMM: u16 = 0;
const ABS: u16 = 0x20;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const SCRATCH_WORDS: usize = 16;

/// What `program` says of `data`. `None`: it can't be run.
pub fn run(len: usize, program: impl Fn(usize) -> Instruction, data: &Data) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut memory = [0u32; SCRATCH_WORDS];
    let mut at = 0usize;
    // Jumps lead forward only: it ends.
    while at < len {
        let i = program(at);
        at += 1;
        let operand = if i.code & X != 0 { x } else { i.k };
        match i.code & CLASS {
            LD | LDX => {
                let value = match i.code & MODE {
                    IMM => i.k,
                    ABS => data.word(i.k)?,
                    MEM => *memory.get(i.k as usize)?,
                    LEN => DATA_LEN,
                    _ => return None,
                };
                if i.code & CLASS == LD {
                    a = value;
                } else {
                    x = value;
                }
            }
            ST => *memory.get_mut(i.k as usize)? = a,
            STX => *memory.get_mut(i.k as usize)? = x,
            ALU => {
                a = match i.code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    // Division by zero ends the filter with 0, as in the kernel.
                    0x30 if operand == 0 => return Some(0),
                    0x30 => a / operand,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            JMP => {
                let holds = match i.code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(i.k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += if holds { i.jt } else { i.jf } as usize;
            }
            RET => {
                return Some(match i.code & 0x18 {
                    0x10 => a,
                    _ => i.k,
                })
            }
            MISC if i.code & 0xf8 == 0x80 => a = x,
            MISC => x = a,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ins(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn verdict(program: &[Instruction], data: &Data) -> Option<u32> {
        run(program.len(), |i| program[i], data)
    }

    const NUMBER: Instruction = Instruction {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    };

    #[test]
    fn words_survive_being_packed() {
        let i = ins(0x15, 3, 4, 0xdead_beef);
        assert_eq!(Instruction::from_word(i.to_word()), i);
    }

    #[test]
    fn a_filter_by_number_and_argument() {
        // ld nr; jeq #39 -> errno 7; ld low half of argument 1; jgt #10 -> kill; allow
        let program = [
            NUMBER,
            ins(0x15, 0, 1, 39),
            ins(0x06, 0, 0, 0x5_0007),
            ins(0x20, 0, 0, 24),
            ins(0x25, 0, 1, 10),
            ins(0x06, 0, 0, 0x8000_0000),
            ins(0x06, 0, 0, 0x7fff_0000),
        ];
        let mut d = Data {
            nr: 39,
            ..Data::default()
        };
        assert_eq!(verdict(&program, &d), Some(0x5_0007));
        d.nr = 1;
        d.args[1] = 10;
        assert_eq!(verdict(&program, &d), Some(0x7fff_0000));
        d.args[1] = 11;
        assert_eq!(verdict(&program, &d), Some(0x8000_0000));
    }

    #[test]
    fn arithmetic_memory_and_both_halves() {
        // ld high half of pc; st m[2]; ldx m[2]; ld #5; add x; mul #3; tax; ld len; sub x; ret a
        let program = [
            ins(0x20, 0, 0, 12),
            ins(0x02, 0, 0, 2),
            ins(0x61, 0, 0, 2),
            ins(0x00, 0, 0, 5),
            ins(0x0c, 0, 0, 0),
            ins(0x24, 0, 0, 3),
            ins(0x07, 0, 0, 0),
            ins(0x80, 0, 0, 0),
            ins(0x1c, 0, 0, 0),
            ins(0x16, 0, 0, 0),
        ];
        let d = Data {
            pc: 2 << 32 | 99,
            ..Data::default()
        };
        assert_eq!(verdict(&program, &d), Some(64 - 21));
        // Division by a zero X is 0, whatever comes after it.
        let by_zero = [ins(0x3c, 0, 0, 0), ins(0x06, 0, 0, 0x7fff_0000)];
        assert_eq!(verdict(&by_zero, &d), Some(0));
    }

    #[test]
    fn nonsense_has_no_verdict() {
        let d = Data::default();
        for bad in [
            &[][..],
            &[NUMBER],
            &[ins(0x20, 0, 0, 64)],
            &[ins(0x20, 0, 0, 2)],
            &[ins(0x60, 0, 0, 16)],
            &[ins(0x05, 0, 0, u32::MAX)],
            &[ins(0x15, 200, 200, 0), ins(0x06, 0, 0, 0)],
        ] {
            assert_eq!(verdict(bad, &d), None);
        }
    }
}
