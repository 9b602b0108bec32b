//! Agent expressions: the conditions of breakpoints, as gdb compiles them for whoever is to evaluate them (GDB's manual, appendix F). An
//! expression is code for a machine with a stack of 64-bit words, the program's registers and its memory.

use crate::debuggee::General;

/// Most bytes of an expression.
pub const MAX_BYTES: usize = 4096;
/// Most words on its stack.
const MAX_STACK: usize = 256;
/// Most operations that are made of it. gdb makes no loops.
const MAX_OPERATIONS: usize = 10_000;

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Binary(Binary),
    /// Is it zero?
    LogNot,
    BitNot,
    /// Of so many bits, with their sign.
    Extend(u32),
    /// Of so many bits, without.
    ZeroExtend(u32),
    /// So many bytes of memory.
    Read(u8),
    /// Goes to this offset if the word is not zero.
    IfGoto(usize),
    Goto(usize),
    Constant(u64),
    /// As gdb numbers them.
    Register(u16),
    End,
    Pop,
    Swap,
    /// A copy of the word so far below the topmost.
    Pick(u8),
    /// The topmost becomes the third.
    Rotate,
}

/// An operation on two words, of which the second is the topmost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    DivSigned,
    DivUnsigned,
    RemSigned,
    RemUnsigned,
    ShiftLeft,
    ShiftRightSigned,
    ShiftRightUnsigned,
    And,
    Or,
    Xor,
    Equal,
    LessSigned,
    LessUnsigned,
}

impl Binary {
    fn of(code: u8) -> Option<Binary> {
        Some(match code {
            0x02 => Binary::Add,
            0x03 => Binary::Sub,
            0x04 => Binary::Mul,
            0x05 => Binary::DivSigned,
            0x06 => Binary::DivUnsigned,
            0x07 => Binary::RemSigned,
            0x08 => Binary::RemUnsigned,
            0x09 => Binary::ShiftLeft,
            0x0a => Binary::ShiftRightSigned,
            0x0b => Binary::ShiftRightUnsigned,
            0x0f => Binary::And,
            0x10 => Binary::Or,
            0x11 => Binary::Xor,
            0x13 => Binary::Equal,
            0x14 => Binary::LessSigned,
            0x15 => Binary::LessUnsigned,
            _ => return None,
        })
    }

    /// `None`: a division by zero.
    fn apply(self, a: u64, b: u64) -> Option<u64> {
        let (x, y) = (a as i64, b as i64);
        Some(match self {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::DivSigned => (y != 0).then(|| x.wrapping_div(y) as u64)?,
            Binary::DivUnsigned => a.checked_div(b)?,
            Binary::RemSigned => (y != 0).then(|| x.wrapping_rem(y) as u64)?,
            Binary::RemUnsigned => a.checked_rem(b)?,
            Binary::ShiftLeft => a.wrapping_shl(b as u32),
            Binary::ShiftRightSigned => x.wrapping_shr(b as u32) as u64,
            Binary::ShiftRightUnsigned => a.wrapping_shr(b as u32),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Equal => u64::from(a == b),
            Binary::LessSigned => u64::from(x < y),
            Binary::LessUnsigned => u64::from(a < b),
        })
    }
}

/// An expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expression(Vec<u8>);

impl Expression {
    /// One of these bytes; `None` when they are too many.
    pub fn new(bytes: Vec<u8>) -> Option<Expression> {
        (bytes.len() <= MAX_BYTES).then_some(Expression(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The operation at this offset, and the offset behind it; `None` when there is none that is known.
    pub(crate) fn operation(&self, at: usize) -> Option<(Operation, usize)> {
        let code = *self.0.get(at)?;
        let rest = &self.0[at + 1..];
        // Numbers are written with their highest byte first.
        let number = |n: usize| {
            let bytes = rest.get(..n)?;
            Some(bytes.iter().fold(0u64, |v, b| v << 8 | u64::from(*b)))
        };
        let (operation, more) = match code {
            0x0e => (Operation::LogNot, 0),
            0x12 => (Operation::BitNot, 0),
            0x16 => (Operation::Extend(number(1)? as u32), 1),
            0x17..=0x1a => (Operation::Read(1 << (code - 0x17)), 0),
            0x20 => (Operation::IfGoto(number(2)? as usize), 2),
            0x21 => (Operation::Goto(number(2)? as usize), 2),
            0x22..=0x25 => {
                let n = 1 << (code - 0x22);
                (Operation::Constant(number(n)?), n)
            }
            0x26 => (Operation::Register(number(2)? as u16), 2),
            0x27 => (Operation::End, 0),
            0x28 => (Operation::Pick(0), 0),
            0x29 => (Operation::Pop, 0),
            0x2a => (Operation::ZeroExtend(number(1)? as u32), 1),
            0x2b => (Operation::Swap, 0),
            0x32 => (Operation::Pick(number(1)? as u8), 1),
            0x33 => (Operation::Rotate, 0),
            _ => (Operation::Binary(Binary::of(code)?), 0),
        };
        Some((operation, at + 1 + more))
    }

    /// Its value with these registers, and memory as `read` gives it (false: there is none); `None` where it has none.
    pub(crate) fn value(
        &self,
        registers: &General,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u64> {
        let mut stack: Vec<u64> = Vec::new();
        let mut at = 0;
        for _ in 0..MAX_OPERATIONS {
            let (operation, next) = self.operation(at)?;
            at = next;
            let pushed = match operation {
                Operation::End => return stack.pop(),
                Operation::Goto(to) => {
                    at = to;
                    continue;
                }
                Operation::IfGoto(to) => {
                    if stack.pop()? != 0 {
                        at = to;
                    }
                    continue;
                }
                Operation::Pop => {
                    stack.pop()?;
                    continue;
                }
                Operation::Swap => {
                    let below = stack.len().checked_sub(2)?;
                    stack.swap(below, below + 1);
                    continue;
                }
                Operation::Rotate => {
                    let third = stack.len().checked_sub(3)?;
                    stack[third..].rotate_right(1);
                    continue;
                }
                Operation::Binary(how) => {
                    let b = stack.pop()?;
                    how.apply(stack.pop()?, b)?
                }
                Operation::LogNot => u64::from(stack.pop()? == 0),
                Operation::BitNot => !stack.pop()?,
                Operation::Extend(bits) => extended(stack.pop()?, bits, true),
                Operation::ZeroExtend(bits) => extended(stack.pop()?, bits, false),
                Operation::Read(n) => {
                    let mut bytes = [0; 8];
                    if !read(stack.pop()?, &mut bytes[..n.into()]) {
                        return None;
                    }
                    u64::from_le_bytes(bytes)
                }
                Operation::Constant(value) => value,
                Operation::Register(number) => register(registers, number)?,
                Operation::Pick(below) => *stack.iter().rev().nth(below.into())?,
            };
            if stack.len() == MAX_STACK {
                return None;
            }
            stack.push(pushed);
        }
        None
    }
}

/// What the lowest bits of a word are as a number.
fn extended(value: u64, bits: u32, signed: bool) -> u64 {
    match 64u32.checked_sub(bits) {
        None | Some(0) => value,
        Some(64) => 0,
        Some(above) if signed => ((value << above) as i64 >> above) as u64,
        Some(above) => value << above >> above,
    }
}

/// The register that gdb knows by this number (`registers.rs`).
fn register(registers: &General, number: u16) -> Option<u64> {
    const RIP: u16 = 16;
    const FLAGS: u16 = 17;
    match number {
        RIP => Some(registers.rip),
        FLAGS => Some(registers.flags),
        _ => registers.r.get(usize::from(number)).copied(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Expressions and what they are worth with rdi = 7, rax = -2, and memory in which each byte is the lowest of its address.
    pub(crate) const WORTH: [(&[u8], Option<u64>); 16] = [
        // $rdi == 7; $rdi == 8
        (&[0x26, 0, 5, 0x22, 7, 0x13, 0x27], Some(1)),
        (&[0x26, 0, 5, 0x22, 8, 0x13, 0x27], Some(0)),
        // $rax < $rdi, with signs and without
        (&[0x26, 0, 0, 0x26, 0, 5, 0x14, 0x27], Some(1)),
        (&[0x26, 0, 0, 0x26, 0, 5, 0x15, 0x27], Some(0)),
        // $rdi - $rax; $rdi * 3 % 10; $rax / 2; 1 / 0
        (&[0x26, 0, 5, 0x26, 0, 0, 0x03, 0x27], Some(9)),
        (&[0x26, 0, 5, 0x22, 3, 0x04, 0x22, 10, 0x07, 0x27], Some(1)),
        (&[0x26, 0, 0, 0x22, 2, 0x05, 0x27], Some(u64::MAX)),
        (&[0x22, 1, 0x22, 0, 0x06, 0x27], None),
        // (char)0x1ff; *(short *)0x1234
        (&[0x23, 1, 0xff, 0x16, 8, 0x27], Some(u64::MAX)),
        (&[0x23, 0x12, 0x34, 0x18, 0x27], Some(0x3534)),
        // 1 2 3 rotated: 3 1 2; then (1 - 2) << 3
        (
            &[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x03, 0x2b, 0x09, 0x27],
            Some(u64::MAX << 3),
        ),
        // $rdi && !$rdi, with jumps
        (
            &[
                0x26, 0, 5, 0x0e, 0x20, 0, 16, 0x26, 0, 5, 0x20, 0, 16, 0x22, 1, 0x27, 0x22, 0,
                0x27,
            ],
            Some(0),
        ),
        // a copy of the word below, an unsigned shift
        (&[0x26, 0, 0, 0x22, 60, 0x32, 1, 0x2b, 0x0b, 0x27], Some(15)),
        // nothing on the stack; an end that is missing; no such register
        (&[0x02, 0x27], None),
        (&[0x22, 1], None),
        (&[0x26, 0, 200, 0x27], None),
    ];

    pub(crate) fn registers() -> General {
        let mut g = General::default();
        g.r[0] = -2i64 as u64;
        g.r[5] = 7;
        g
    }

    #[test]
    fn expressions_are_worth_what_gdb_means() {
        for (bytes, worth) in WORTH {
            let e = Expression::new(bytes.to_vec()).expect("short");
            let read = |at: u64, into: &mut [u8]| {
                into.iter_mut().zip(at..).for_each(|(b, at)| *b = at as u8);
                true
            };
            assert_eq!(e.value(&registers(), read), worth, "{bytes:x?}");
        }
        let e = Expression::new(vec![0x22, 1, 0x17, 0x27]).expect("short");
        assert_eq!(e.value(&registers(), |_, _| false), None);
        assert!(Expression::new(vec![0; MAX_BYTES + 1]).is_none());
    }

    #[test]
    fn a_loop_comes_to_an_end() {
        let e = Expression::new(vec![0x21, 0, 0]).expect("short");
        assert_eq!(e.value(&registers(), |_, _| true), None);
    }
}
