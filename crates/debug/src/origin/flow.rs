//! What an instruction does to the value in a location: leaves it, brings it from elsewhere, or makes it.
//!
//! Pure logic over an instruction and the registers before it. Instructions that move bytes unchanged are known one by one, byte for byte; of all
//! others only what they read and write matters, and what they write counts as computed.

mod location;
mod moves;

pub use location::{general, index, value, Location};

use crate::debuggee::General;
use iced_x86::{
    Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// Bytes of the largest vector register.
const VECTOR: usize = 64;
/// Bytes of the vector registers of SSE.
const XMM: usize = 16;

/// What an instruction reads that makes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// What is there.
    At(Location),
    /// A number in the instruction.
    Number(u64),
}

/// Where the instruction has the value from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// It was there before, byte for byte.
    Copy(Location),
    /// It is in the instruction; lowest byte first.
    Constant(Vec<u8>),
    /// It is made of these.
    Computed(Vec<Operand>),
}

/// What is known of a value that an instruction has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Which of the bytes it is about: the first, and how many. The others are older, or known to be zero, or a sign.
    pub part: (u32, u32),
    /// Where these are from.
    pub source: Source,
}

/// Where a byte of what an instruction has written is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Byte {
    /// From this byte.
    Of(Location),
    Number(u8),
    /// It has the sign of this byte.
    Sign(Location),
    /// It is what it was.
    Same,
}

const ZERO: Byte = Byte::Number(0);

/// A location that was written, byte for byte.
type Move = (Location, Vec<Byte>);

/// An instruction and the registers before it.
struct Step<'a> {
    i: &'a Instruction,
    g: &'a General,
}

/// What the instruction has written to this location, if it has.
pub fn source_of(i: &Instruction, g: &General, to: &Location) -> Option<Written> {
    let step = Step { i, g };
    match step.moves() {
        Some(moves) => moves.iter().find_map(|one| of_move(one, to)),
        None => step.computes(to),
    }
}

/// What a move brings to a location: the first stretch of it that comes from one place, and none that stays.
fn of_move((dest, bytes): &Move, to: &Location) -> Option<Written> {
    let (first, count) = to.covered(dest)?;
    let (begin, _) = dest.covered(&to.part(first, count))?;
    let mine = bytes.get(begin as usize..(begin + count) as usize)?;
    let moved = |b: &Byte| matches!(b, Byte::Of(_));
    let changed = |b: &Byte| !matches!(b, Byte::Same);
    // What is only there to fill up is of no interest as long as there is more.
    let start = mine
        .iter()
        .position(moved)
        .or_else(|| mine.iter().position(changed))?;
    let run = mine[start..]
        .iter()
        .zip(0u32..)
        .take_while(|(b, n)| match (mine[start], **b) {
            (Byte::Of(one), Byte::Of(other)) => other == shifted(&one, *n),
            (Byte::Number(_), Byte::Number(_)) => true,
            (Byte::Sign(one), Byte::Sign(other)) => one == other,
            _ => false,
        });
    let len = run.count() as u32;
    let source = match mine[start] {
        Byte::Of(one) => Source::Copy(stretched(&one, len)),
        Byte::Sign(one) => Source::Computed(vec![Operand::At(one)]),
        Byte::Number(_) | Byte::Same => {
            let number = |b: &Byte| match b {
                Byte::Number(n) => *n,
                _ => 0,
            };
            let all = &mine[start..start + len as usize];
            Source::Constant(all.iter().map(number).collect())
        }
    };
    Some(Written {
        part: (first + start as u32, len),
        source,
    })
}

fn shifted(one: &Location, by: u32) -> Location {
    one.part(by, one.len())
}

fn stretched(one: &Location, len: u32) -> Location {
    one.part(0, len)
}

impl Step<'_> {
    fn value(&self, register: Register) -> Option<u64> {
        value(self.i, self.g, register)
    }

    fn memory(&self, operand: u32) -> Option<Location> {
        let at = self
            .i
            .virtual_address(operand, 0, |r, _, _| self.value(r))?;
        let len = self.i.memory_size().size() as u32;
        (len > 0).then_some(Location::Memory { at, len })
    }

    fn used(&self, m: &UsedMemory) -> Option<Location> {
        let at = m.virtual_address(0, |r, _, _| self.value(r))?;
        let len = m.memory_size().size().max(1) as u32;
        Some(Location::Memory { at, len })
    }

    fn location(&self, operand: u32) -> Option<Location> {
        match self.i.op_kind(operand) {
            OpKind::Register => Some(Location::register(self.i.op_register(operand))),
            _ => self.memory(operand),
        }
    }

    /// The bytes of an operand.
    fn bytes(&self, operand: u32) -> Option<Vec<Byte>> {
        if self.is_number(operand) {
            let number = self.i.immediate(operand);
            return Some(number.to_le_bytes().map(Byte::Number).to_vec());
        }
        Some(each(&self.location(operand)?))
    }

    fn is_number(&self, operand: u32) -> bool {
        operand < self.i.op_count() && self.i.try_immediate(operand).is_ok()
    }

    fn number(&self) -> usize {
        let last = self.i.op_count().saturating_sub(1);
        self.i.try_immediate(last).unwrap_or(0) as u8 as usize
    }

    /// A move to the first operand. What of a register is written besides is zero.
    fn to(&self, mut bytes: Vec<Byte>) -> Option<Vec<Move>> {
        let dest = self.location(0)?;
        let size = dest.len() as usize;
        bytes.resize(size, ZERO);
        let Location::Register { whole, from, .. } = dest else {
            return Some(vec![(dest, bytes)]);
        };
        let (is_vector, is_general) = (whole.is_zmm(), index(whole).is_some());
        match () {
            () if is_vector && self.is_new() => bytes.resize(VECTOR, ZERO),
            () if is_general && size == 4 => bytes.resize(8, ZERO),
            () => {}
        }
        let len = bytes.len() as u32;
        Some(vec![(Location::Register { whole, from, len }, bytes)])
    }

    /// Is it one of those that set the rest of a vector register to zero?
    fn is_new(&self) -> bool {
        self.i.encoding() != iced_x86::EncodingKind::Legacy
    }

    /// The operands of an instruction on vectors: that of which the rest is, and the other one.
    fn both(&self) -> Option<(Vec<Byte>, Vec<Byte>)> {
        let numbers = u32::from(self.is_number(self.i.op_count().saturating_sub(1)));
        let last = self.i.op_count().saturating_sub(1 + numbers);
        let first = last.saturating_sub(1);
        let rest = match first {
            0 => vec![Byte::Same; self.location(0)?.len() as usize],
            _ => self.bytes(first)?,
        };
        Some((rest, self.bytes(last)?))
    }

    /// The first operand as it was, byte for byte.
    fn own(&self) -> Option<Vec<Byte>> {
        let first =
            u32::from(self.i.op_count() - u32::from(self.is_number(self.i.op_count() - 1)) > 2);
        self.bytes(first)
    }

    /// What is computed into the location by an instruction that is no move.
    fn computes(&self, to: &Location) -> Option<Written> {
        if self.i.mnemonic() == Mnemonic::Vzeroupper {
            // What is above does not come from anywhere.
            return match to {
                Location::Register { whole, from, .. } if whole.is_zmm() && *from >= XMM as u32 => {
                    Some(Written {
                        part: (0, to.len()),
                        source: Source::Constant(vec![0; to.len() as usize]),
                    })
                }
                _ => None,
            };
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(self.i);
        let registers = info.used_registers().iter();
        let written = registers
            .filter(|r| writes(r.access()))
            .map(|r| Location::register(r.register()));
        let memory = info.used_memory().iter().filter(|m| writes(m.access()));
        let memory = memory.filter_map(|m| self.used(m));
        let part = written.chain(memory).find_map(|w| to.covered(&w))?;
        let mut operands = Vec::new();
        let mut add = |one: Operand| {
            if !operands.contains(&one) {
                operands.push(one);
            }
        };
        // What only says where memory is, is no operand.
        let is_lea = self.i.mnemonic() == Mnemonic::Lea;
        for n in 0..self.i.op_count() {
            match self.i.op_kind(n) {
                OpKind::Register if reads(info.op_access(n)) => {
                    add(Operand::At(Location::register(self.i.op_register(n))));
                }
                OpKind::Register => {}
                _ if self.is_number(n) => add(Operand::Number(self.i.immediate(n))),
                _ if is_lea => {
                    for r in [self.i.memory_base(), self.i.memory_index()] {
                        if index(r.full_register()).is_some() {
                            add(Operand::At(Location::register(r)));
                        }
                    }
                    match self.i.memory_displacement64() {
                        0 => {}
                        number => add(Operand::Number(number)),
                    }
                }
                _ => {}
            }
        }
        for m in info.used_memory().iter().filter(|m| reads(m.access())) {
            if let Some(at) = self.used(m) {
                add(Operand::At(at));
            }
        }
        // Operands that are not named: of multiplications, divisions, and of what repeats.
        let explicit = |r: Register| {
            (0..self.i.op_count()).any(|n| {
                self.i.op_kind(n) == OpKind::Register
                    && self.i.op_register(n).full_register() == r.full_register()
            }) || [self.i.memory_base(), self.i.memory_index()]
                .iter()
                .any(|m| m.full_register() == r.full_register())
        };
        for r in info.used_registers().iter().filter(|r| reads(r.access())) {
            let register = r.register();
            let is_value = index(register.full_register()).is_some()
                && register.full_register() != Register::RSP;
            if is_value && !explicit(register) {
                add(Operand::At(Location::register(register)));
            }
        }
        Some(Written {
            part,
            source: Source::Computed(operands),
        })
    }
}

/// Each byte of a location.
fn each(location: &Location) -> Vec<Byte> {
    let one = |n| Byte::Of(location.part(n, 1));
    (0..location.len()).map(one).collect()
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode()
    }

    fn registers() -> General {
        let mut g = General::default();
        for (r, n) in g.r.iter_mut().zip(0..) {
            *r = 0x10_0000 * (n + 1);
        }
        g
    }

    fn memory(at: u64, len: u32) -> Location {
        Location::Memory { at, len }
    }

    fn in_register(whole: Register, from: u32, len: u32) -> Location {
        Location::Register { whole, from, len }
    }

    fn source(code: &[u8], to: Location) -> Option<Written> {
        source_of(&decoded(code), &registers(), &to)
    }

    fn copied(code: &[u8], to: Location) -> Option<Location> {
        match source(code, to)?.source {
            Source::Copy(from) => Some(from),
            _ => None,
        }
    }

    const RBX_AT: u64 = 0x20_0000;
    const RSP_AT: u64 = 0x80_0000;

    #[test]
    fn a_store_brings_a_register_to_memory_and_nowhere_else() {
        // mov [rbx+4], al
        let store = [0x88, 0x43, 0x04];
        let al = in_register(Register::RAX, 0, 1);
        assert_eq!(copied(&store, memory(RBX_AT + 4, 1)), Some(al));
        assert_eq!(source(&store, memory(RBX_AT + 5, 1)), None);
        assert_eq!(source(&store, al), None);
        // mov [rbx], rax: two bytes in the midst of it
        let store = [0x48, 0x89, 0x03];
        assert_eq!(
            copied(&store, memory(RBX_AT + 2, 2)),
            Some(in_register(Register::RAX, 2, 2))
        );
        // Of more than it has written it is about that part.
        let some = source(&store, memory(RBX_AT + 6, 4)).expect("a write");
        assert_eq!(some.part, (0, 2));
    }

    #[test]
    fn a_load_widens_and_the_rest_is_zero_or_a_sign() {
        // movzx eax, byte [rbx]
        let load = [0x0f, 0xb6, 0x03];
        assert_eq!(
            copied(&load, in_register(Register::RAX, 0, 4)),
            Some(memory(RBX_AT, 1))
        );
        let rest = source(&load, in_register(Register::RAX, 4, 4)).expect("zero");
        assert_eq!(rest.source, Source::Constant(vec![0; 4]));
        // movsx eax, byte [rbx]
        let load = [0x0f, 0xbe, 0x03];
        let rest = source(&load, in_register(Register::RAX, 1, 1)).expect("a sign");
        assert_eq!(
            rest.source,
            Source::Computed(vec![Operand::At(memory(RBX_AT, 1))])
        );
        // mov eax, [rbx] writes all of rax.
        let rest = source(&[0x8b, 0x03], in_register(Register::RAX, 6, 1)).expect("zero");
        assert_eq!(rest.source, Source::Constant(vec![0]));
    }

    #[test]
    fn pushes_pops_and_calls_go_through_the_stack() {
        // push rbp; pop rbp; call +0
        assert_eq!(
            copied(&[0x55], memory(RSP_AT - 8, 8)),
            Some(in_register(Register::RBP, 0, 8))
        );
        assert_eq!(
            copied(&[0x5d], in_register(Register::RBP, 0, 8)),
            Some(memory(RSP_AT, 8))
        );
        let call = source(&[0xe8, 0, 0, 0, 0], memory(RSP_AT - 8, 8)).expect("an address");
        assert_eq!(
            call.source,
            Source::Constant(0x1005u64.to_le_bytes().to_vec())
        );
    }

    #[test]
    fn strings_are_copied_round_by_round() {
        // rep movsb: rsi 0x500000, rdi 0x600000
        let copy = [0xf3, 0xa4];
        assert_eq!(
            copied(&copy, memory(0x60_0000, 1)),
            Some(memory(0x50_0000, 1))
        );
        assert_eq!(source(&copy, memory(0x60_0001, 1)), None);
        let mut g = registers();
        g.r[2] = 0;
        let none = source_of(&decoded(&copy), &g, &memory(0x60_0000, 1));
        assert_eq!(none, None);
        // movsd, which is no move of a double
        assert_eq!(
            copied(&[0xa5], memory(0x60_0002, 2)),
            Some(memory(0x50_0002, 2))
        );
    }

    #[test]
    fn vectors_are_moved_byte_for_byte() {
        // movdqu xmm1, [rbx]; movups [rbx], xmm1
        let xmm1 = in_register(Register::ZMM1, 5, 2);
        assert_eq!(
            copied(&[0xf3, 0x0f, 0x6f, 0x0b], xmm1),
            Some(memory(RBX_AT + 5, 2))
        );
        assert_eq!(
            copied(&[0x0f, 0x11, 0x0b], memory(RBX_AT + 5, 2)),
            Some(xmm1)
        );
        // punpcklqdq xmm0, xmm1: the upper half is xmm1's lower one, and the lower one stays.
        let both = [0x66, 0x0f, 0x6c, 0xc1];
        assert_eq!(
            copied(&both, in_register(Register::ZMM0, 8, 8)),
            Some(in_register(Register::ZMM1, 0, 8))
        );
        // vmovdqu ymm0, [rbx]: what is above is zero.
        let load = [0xc5, 0xfe, 0x6f, 0x03];
        let rest = source(&load, in_register(Register::ZMM0, 40, 4)).expect("zero");
        assert_eq!(rest.source, Source::Constant(vec![0; 4]));
        // vzeroupper leaves what is below.
        assert_eq!(
            source(&[0xc5, 0xf8, 0x77], in_register(Register::ZMM0, 0, 16)),
            None
        );
        // movhps [rbx], xmm0
        assert_eq!(
            copied(&[0x0f, 0x17, 0x03], memory(RBX_AT, 8)),
            Some(in_register(Register::ZMM0, 8, 8))
        );
    }

    #[test]
    fn what_is_computed_has_operands() {
        // add eax, [rbx]
        let sum = source(&[0x03, 0x03], in_register(Register::RAX, 0, 4)).expect("a sum");
        assert_eq!(
            sum.source,
            Source::Computed(vec![
                Operand::At(in_register(Register::RAX, 0, 4)),
                Operand::At(memory(RBX_AT, 4))
            ])
        );
        // lea eax, [rbx + rcx*2 + 5]
        let sum = source(&[0x8d, 0x44, 0x4b, 0x05], in_register(Register::RAX, 0, 4));
        let Some(Source::Computed(of)) = sum.map(|w| w.source) else {
            panic!("it is computed");
        };
        assert_eq!(of.len(), 3);
        assert!(of.contains(&Operand::Number(5)));
        // imul eax, [rbx], 3: what it writes, it doesn't read.
        let product = source(&[0x6b, 0x03, 0x03], in_register(Register::RAX, 0, 4));
        let Some(Source::Computed(of)) = product.map(|w| w.source) else {
            panic!("it is computed");
        };
        assert_eq!(of, [Operand::Number(3), Operand::At(memory(RBX_AT, 4))]);
    }

    #[test]
    fn constants_are_known() {
        // mov byte [rbx], 'x'
        let byte = source(&[0xc6, 0x03, b'x'], memory(RBX_AT, 1)).expect("a number");
        assert_eq!(byte.source, Source::Constant(vec![b'x']));
        // xor eax, eax
        let zero = source(&[0x31, 0xc0], in_register(Register::RAX, 0, 8)).expect("zero");
        assert_eq!(zero.source, Source::Constant(vec![0; 8]));
        // xor eax, ebx is no constant.
        let other = source(&[0x31, 0xd8], in_register(Register::RAX, 0, 4)).expect("computed");
        assert!(matches!(other.source, Source::Computed(of) if of.len() == 2));
    }

    #[test]
    fn a_conditional_move_depends_on_the_flags() {
        // cmove rax, rbx
        let code = [0x48, 0x0f, 0x44, 0xc3];
        let rax = in_register(Register::RAX, 0, 8);
        let mut g = registers();
        assert_eq!(source_of(&decoded(&code), &g, &rax), None);
        g.flags = 1 << 6;
        let moved = source_of(&decoded(&code), &g, &rax).map(|w| w.source);
        assert_eq!(moved, Some(Source::Copy(in_register(Register::RBX, 0, 8))));
        // sete al is no move.
        let set = source_of(
            &decoded(&[0x0f, 0x94, 0xc0]),
            &g,
            &in_register(Register::RAX, 0, 1),
        );
        assert!(matches!(set.map(|w| w.source), Some(Source::Computed(_))));
    }

    proptest::proptest! {
        #[test]
        fn no_instruction_makes_it_fail(code in proptest::collection::vec(0u8.., 1..15), n in 0usize..32) {
            let i = decoded(&code);
            let whole = Register::ZMM0 + n as u32;
            for to in [memory(RBX_AT, 64), in_register(Register::RAX, 0, 8), in_register(whole, 3, 20)] {
                if let Some(w) = source_of(&i, &registers(), &to) {
                    proptest::prop_assert!(w.part.1 > 0 && w.part.0 + w.part.1 <= to.len());
                }
            }
        }
    }
}
