//! One instruction of the program: its length, where control goes from it, and which memory it names.
//!
//! A thin layer over `iced-x86`, with the distinctions that cuts need and no others. The decoder allocates only its tables
//! (see [`arena`](crate::arena)).

use crate::memory::Memory;
use crate::regs::{Regs, GPRS, RCX, RSP};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Longest instruction in bytes.
pub const MAX_INSN: usize = 15;
/// Most memory operands of an instruction: two of its own and what it pushes.
pub const MAX_OPERANDS: usize = 3;
/// Longest operand whose value is looked at, in bytes (a zmm register).
pub const MAX_OPERAND: u32 = 64;

/// When a conditional branch is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// By the flags: the condition as encoded in the opcode, 0 (`jo`) to 15 (`jg`).
    Flags(u8),
    /// `loop`, with the mask of its counter (rcx or ecx).
    Loop(u64),
    /// `loope`
    LoopEqual(u64),
    /// `loopne`
    LoopNotEqual(u64),
    /// `jrcxz`, `jecxz`
    CounterZero(u64),
}

/// Where control goes from an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// To the next one.
    Next,
    /// To the next one, after any number of rounds that no breakpoint can part.
    Repeat,
    /// To a target or to the next one.
    Branch(Condition, u64),
    /// To a target.
    Jump(u64),
    /// To where a register or memory says.
    JumpIndirect,
    /// Into a function.
    Call(u64),
    /// Into a function that a register or memory names.
    CallIndirect,
    /// To where the stack says.
    Return,
    /// Into the runtime, by a system call, trap or fault.
    Gate,
    /// Anything else: far transfers, transactions.
    Odd,
}

/// Memory that an instruction names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operand {
    /// Its address.
    pub addr: u64,
    /// Its bytes, at most [`MAX_OPERAND`].
    pub size: u32,
}

/// All memory that an instruction names, given the registers before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operands {
    list: [Operand; MAX_OPERANDS],
    len: usize,
    /// It may write memory that is not in the list.
    pub more: bool,
}

impl Operands {
    /// The operands that are known.
    pub fn list(&self) -> &[Operand] {
        &self.list[..self.len]
    }

    fn push(&mut self, addr: u64, size: u32) {
        if size == 0 || size > MAX_OPERAND || self.len == MAX_OPERANDS {
            self.more = true;
            return;
        }
        self.list[self.len] = Operand { addr, size };
        self.len += 1;
    }
}

/// How an instruction names memory: registers by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// What it counts from.
    pub base: Option<u8>,
    /// What is added.
    pub index: Option<u8>,
    /// How many times.
    pub scale: u8,
    /// The displacement, or without registers the address.
    pub offset: u64,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Where it lies.
    pub pc: u64,
    /// Where control goes.
    pub flow: Flow,
    bytes: [u8; MAX_INSN],
    len: u8,
    /// Offset of the 32-bit displacement of a RIP-relative operand.
    pub rip_disp: Option<u8>,
    inner: Instruction,
}

/// Decodes the instruction at the start of `code`, which lies at `pc`. None when the bytes end within it or are none.
pub fn decode(pc: u64, code: &[u8]) -> Option<Insn> {
    let code = &code[..code.len().min(MAX_INSN)];
    let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
    one(&mut decoder, pc, code)
}

/// Decodes the instructions in `code`, which lies at `start`, one after the other. `found` says how many bytes behind each are to be passed over.
pub fn decode_all(start: u64, code: &[u8], mut found: impl FnMut(&Insn) -> usize) {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut at = 0;
    while at < code.len() {
        let Some(i) = one(&mut decoder, start + at as u64, &code[at..]) else {
            return;
        };
        at += i.len as usize;
        let more = found(&i);
        if more != 0 {
            at += more;
            if decoder.set_position(at).is_err() {
                return;
            }
            decoder.set_ip(start + at as u64);
        }
    }
}

/// The next instruction of the decoder, which is at `pc` and sees `code`.
#[inline(always)]
fn one(decoder: &mut Decoder, pc: u64, code: &[u8]) -> Option<Insn> {
    let inner = decoder.decode();
    if inner.is_invalid() {
        return None;
    }
    let len = inner.len();
    let bytes = code.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; MAX_INSN];
        bytes[..len].copy_from_slice(&code[..len]);
        bytes
    });
    let rip_disp = (inner.memory_base() == Register::RIP
        && inner.op_kinds().any(|k| k == OpKind::Memory))
    .then(|| decoder.get_constant_offsets(&inner).displacement_offset() as u8);
    Some(Insn {
        pc,
        flow: flow(&inner),
        bytes,
        len: len as u8,
        rip_disp,
        inner,
    })
}

fn flow(i: &Instruction) -> Flow {
    match i.flow_control() {
        FlowControl::Next => {
            let trapping = matches!(
                i.mnemonic(),
                Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Cpuid
            ) || (i.is_privileged() && i.mnemonic() != Mnemonic::Rdpmc);
            if trapping {
                Flow::Gate
            } else if i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix()) {
                Flow::Repeat
            } else {
                Flow::Next
            }
        }
        FlowControl::ConditionalBranch if i.op0_kind() == OpKind::NearBranch64 => {
            Flow::Branch(condition(i), i.near_branch_target())
        }
        FlowControl::UnconditionalBranch if i.op0_kind() == OpKind::NearBranch64 => {
            Flow::Jump(i.near_branch_target())
        }
        FlowControl::Call if i.op0_kind() == OpKind::NearBranch64 => {
            Flow::Call(i.near_branch_target())
        }
        FlowControl::IndirectBranch if near_indirect(i) => Flow::JumpIndirect,
        FlowControl::IndirectCall if near_indirect(i) => Flow::CallIndirect,
        FlowControl::Return
            if i.mnemonic() == Mnemonic::Ret && i.stack_pointer_increment() >= 8 =>
        {
            Flow::Return
        }
        FlowControl::Interrupt | FlowControl::Exception => Flow::Gate,
        // `syscall` and `sysenter` are calls to the decoder.
        FlowControl::Call if matches!(i.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) => {
            Flow::Gate
        }
        _ => Flow::Odd,
    }
}

fn near_indirect(i: &Instruction) -> bool {
    match i.op0_kind() {
        OpKind::Register => i.op0_register().is_gpr64(),
        OpKind::Memory => {
            i.memory_size().size() == 8 && matches!(i.mnemonic(), Mnemonic::Jmp | Mnemonic::Call)
        }
        _ => false,
    }
}

fn condition(i: &Instruction) -> Condition {
    use iced_x86::Code;
    match i.code() {
        Code::Loop_rel8_64_RCX => Condition::Loop(u64::MAX),
        Code::Loop_rel8_64_ECX => Condition::Loop(u32::MAX as u64),
        Code::Loope_rel8_64_RCX => Condition::LoopEqual(u64::MAX),
        Code::Loope_rel8_64_ECX => Condition::LoopEqual(u32::MAX as u64),
        Code::Loopne_rel8_64_RCX => Condition::LoopNotEqual(u64::MAX),
        Code::Loopne_rel8_64_ECX => Condition::LoopNotEqual(u32::MAX as u64),
        Code::Jrcxz_rel8_64 => Condition::CounterZero(u64::MAX),
        Code::Jecxz_rel8_64 => Condition::CounterZero(u32::MAX as u64),
        // The decoder numbers conditions from 1 in the order of the opcodes.
        _ => Condition::Flags((i.condition_code() as u8).wrapping_sub(1) & 15),
    }
}

impl Insn {
    /// The instruction at `pc`; None when it can't be read or is none (running it is a fault).
    pub fn at<M: Memory + ?Sized>(pc: u64, memory: &M) -> Option<Insn> {
        let mut code = [0; MAX_INSN];
        let len = memory.read_some(pc, &mut code);
        decode(pc, &code[..len])
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Address of the instruction after it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.pc.wrapping_add(self.len as u64)
    }

    /// Bytes of its memory operand.
    #[inline]
    pub fn memory_size(&self) -> u8 {
        self.inner.memory_size().size() as u8
    }

    /// Address of its RIP-relative operand.
    pub fn rip_target(&self) -> Option<u64> {
        self.rip_disp.map(|_| self.inner.ip_rel_memory_address())
    }

    /// How it names memory; `None` where a segment counts, or other registers than those of 64 bits, or none is named.
    pub fn place(&self) -> Option<Place> {
        let i = &self.inner;
        if !i.op_kinds().any(|k| k == OpKind::Memory) || i.segment_prefix() != Register::None {
            return None;
        }
        let number = |r: Register| r.is_gpr64().then(|| r.number() as u8);
        let fixed = self.rip_target().is_some();
        let is_told = |r: Register| r == Register::None || r.is_gpr64();
        if !(fixed || is_told(i.memory_base())) || !is_told(i.memory_index()) {
            return None;
        }
        Some(Place {
            base: if fixed { None } else { number(i.memory_base()) },
            index: number(i.memory_index()),
            scale: i.memory_index_scale() as u8,
            offset: match self.rip_target() {
                Some(target) => target,
                None => i.memory_displacement64(),
            },
        })
    }

    /// The registers of `mov b, a` between two of 64 bits.
    pub fn copies_register(&self) -> Option<(u8, u8)> {
        let i = &self.inner;
        let registers = i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Register
            && i.op1_kind() == OpKind::Register
            && i.op0_register().is_gpr64()
            && i.op1_register().is_gpr64();
        registers.then(|| {
            (
                i.op0_register().number() as u8,
                i.op1_register().number() as u8,
            )
        })
    }

    /// The registers of `lea b, [a + ..]`, where it makes one address of another.
    pub fn derives_address(&self) -> Option<(u8, u8)> {
        let i = &self.inner;
        let fits = i.mnemonic() == Mnemonic::Lea
            && i.op0_register().is_gpr64()
            && i.memory_base().is_gpr64()
            && i.memory_base() != Register::RSP
            && i.memory_base() != Register::RBP
            && i.memory_index() == Register::None;
        fits.then(|| {
            (
                i.op0_register().number() as u8,
                i.memory_base().number() as u8,
            )
        })
    }

    /// The constant that it puts into a register of 32 bits.
    pub fn loads_constant(&self) -> Option<(u8, u32)> {
        let i = &self.inner;
        let fits = i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Register
            && i.op0_register().is_gpr32()
            && i.op1_kind() == OpKind::Immediate32;
        fits.then(|| (i.op0_register().number() as u8, i.immediate32()))
    }

    /// May it change memory in one step? Others can't.
    pub fn may_change_at_once(&self) -> bool {
        let may = matches!(self.inner.mnemonic(), Mnemonic::Xchg | Mnemonic::Mfence);
        self.inner.has_lock_prefix() || may
    }

    /// Does it exchange a register and memory?
    pub fn exchanges(&self) -> bool {
        self.inner.mnemonic() == Mnemonic::Xchg && self.inner.op_kind(0) == OpKind::Memory
    }

    /// It has a LOCK prefix, which code sometimes jumps over.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.inner.has_lock_prefix()
    }

    /// A copy of it elsewhere does the same, once displacements are adjusted. Not so: calls (they push their address), x87
    /// instructions (the processor remembers their address), EIP-relative operands, gates.
    pub fn can_move(&self) -> bool {
        let flow = match self.flow {
            Flow::Next | Flow::Branch(..) | Flow::Jump(_) | Flow::JumpIndirect | Flow::Return => {
                true
            }
            Flow::Repeat | Flow::Call(_) | Flow::CallIndirect | Flow::Gate | Flow::Odd => false,
        };
        flow && !self.is_x87() && self.inner.memory_base() != Register::EIP
    }

    fn is_x87(&self) -> bool {
        let opcode = self.bytes().iter().find(|b| {
            let prefix = matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f);
            !prefix
        });
        matches!(opcode, Some(0xd8..=0xdf | 0x9b))
    }

    /// The target of an indirect jump or call.
    pub fn indirect_target<M: Memory + ?Sized>(&self, regs: &Regs, memory: &M) -> Option<u64> {
        match self.inner.op0_kind() {
            OpKind::Register => value_of(self.inner.op0_register(), regs),
            _ => memory.word(self.address(0, regs)?),
        }
    }

    /// One of the plain instructions that use no register but those that they name, and write none but their first operand.
    pub fn is_explicit(&self) -> bool {
        use Mnemonic::*;
        matches!(
            self.flow,
            Flow::Branch(Condition::Flags(_), _) | Flow::Jump(_)
        ) || matches!(
            self.inner.mnemonic(),
            Mov | Movzx
                | Movsx
                | Movsxd
                | Lea
                | Add
                | Sub
                | Adc
                | Sbb
                | Inc
                | Dec
                | Neg
                | Not
                | And
                | Or
                | Xor
                | Cmp
                | Test
                | Shl
                | Shr
                | Sar
                | Rol
                | Ror
                | Bt
                | Nop
                | Pause
                | Movss
                | Movaps
                | Movups
                | Movapd
                | Movdqa
                | Movdqu
                | Movd
                | Movq
                | Addss
                | Addsd
                | Subss
                | Subsd
                | Mulss
                | Mulsd
                | Divss
                | Divsd
                | Addps
                | Addpd
                | Mulps
                | Mulpd
                | Paddb
                | Paddw
                | Paddd
                | Paddq
                | Psubd
                | Psubq
                | Pand
                | Por
                | Pxor
                | Cvtsi2sd
                | Cvtsi2ss
                | Cvttsd2si
                | Cvttss2si
                | Ucomisd
                | Ucomiss
                | Comisd
                | Comiss
        ) || (self.inner.mnemonic() == Imul && self.inner.op_count() > 1)
    }

    /// Does an operand name this general register, as a whole or in part?
    pub fn names(&self, register: u8) -> bool {
        let i = &self.inner;
        let operand = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && is_gpr(i.op_register(n), register));
        operand || is_gpr(i.memory_base(), register) || is_gpr(i.memory_index(), register)
    }

    /// Is its first operand memory, and does it change that?
    pub fn stores(&self) -> bool {
        let i = &self.inner;
        let reads = matches!(
            i.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Nop | Mnemonic::Push
        );
        self.flow == Flow::Next && i.op_count() > 0 && i.op0_kind() == OpKind::Memory && !reads
    }

    /// Is its first operand this general register, or a part of it?
    pub fn writes(&self, register: u8) -> bool {
        let i = &self.inner;
        i.op_count() > 0 && i.op0_kind() == OpKind::Register && is_gpr(i.op0_register(), register)
    }

    fn address(&self, operand: u32, regs: &Regs) -> Option<u64> {
        self.inner
            .virtual_address(operand, 0, |register, _, _| value_of(register, regs))
    }

    /// The memory that it names, before it runs.
    pub fn operands(&self, regs: &Regs) -> Operands {
        let mut all = Operands::default();
        let i = &self.inner;
        match i.mnemonic() {
            Mnemonic::Lea | Mnemonic::Nop => return all,
            // With a register as bit number they reach beyond their operand.
            Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
                all.more = i.op1_kind() == OpKind::Register
            }
            _ => {}
        }
        if self.flow == Flow::Repeat || i.is_vsib() {
            all.more = true;
            return all;
        }
        for n in 0..i.op_count() {
            let memory = matches!(
                i.op_kind(n),
                OpKind::Memory
                    | OpKind::MemorySegRDI
                    | OpKind::MemoryESRDI
                    | OpKind::MemorySegRSI
                    | OpKind::MemorySegEDI
                    | OpKind::MemoryESEDI
                    | OpKind::MemorySegESI
            );
            if memory {
                match self.address(n, regs) {
                    Some(addr) => all.push(addr, i.memory_size().size() as u32),
                    None => all.more = true,
                }
            }
        }
        let pushed = i.stack_pointer_increment();
        if pushed < 0 {
            all.push(
                regs.gpr[RSP].wrapping_add(pushed as u64),
                pushed.unsigned_abs(),
            );
        }
        all
    }
}

/// Is `name` the general register with this number, or a part of it?
fn is_gpr(name: Register, number: u8) -> bool {
    name.is_gpr() && name.full_register().number() == number as usize
}

fn value_of(register: Register, regs: &Regs) -> Option<u64> {
    Some(match register {
        Register::FS => regs.fs_base,
        Register::GS => regs.gs_base,
        r if r.is_segment_register() => 0,
        r if r.is_gpr64() => regs.gpr[r.number() % GPRS],
        r if r.is_gpr32() => regs.gpr[r.number() % GPRS] & u32::MAX as u64,
        // xlat adds al
        Register::AL => regs.gpr[0] & 0xff,
        _ => return None,
    })
}

impl Condition {
    /// Is the branch taken?
    pub fn holds(self, regs: &Regs) -> bool {
        use crate::regs::{CF, OF, PF, SF, ZF};
        let flag = |f: u64| regs.rflags & f != 0;
        let counted = |mask: u64| regs.gpr[RCX].wrapping_sub(1) & mask != 0;
        match self {
            Condition::Flags(code) => {
                let base = match code >> 1 {
                    0 => flag(OF),
                    1 => flag(CF),
                    2 => flag(ZF),
                    3 => flag(CF) || flag(ZF),
                    4 => flag(SF),
                    5 => flag(PF),
                    6 => flag(SF) != flag(OF),
                    _ => flag(ZF) || flag(SF) != flag(OF),
                };
                base != (code & 1 == 1)
            }
            Condition::Loop(mask) => counted(mask),
            Condition::LoopEqual(mask) => counted(mask) && flag(ZF),
            Condition::LoopNotEqual(mask) => counted(mask) && !flag(ZF),
            Condition::CounterZero(mask) => regs.gpr[RCX] & mask == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: &[u8]) -> Insn {
        decode(0x1000, code).unwrap()
    }

    #[test]
    fn flows() {
        let cases: &[(&[u8], Flow)] = &[
            (&[0x90], Flow::Next),
            (&[0xf3, 0xaa], Flow::Repeat),
            (&[0xf2, 0xae], Flow::Repeat),
            (&[0xaa], Flow::Next),
            (&[0xf3, 0x90], Flow::Next), // pause
            (&[0x75, 0xfe], Flow::Branch(Condition::Flags(5), 0x1000)),
            (&[0x70, 0x00], Flow::Branch(Condition::Flags(0), 0x1002)),
            (
                &[0x0f, 0x8f, 0, 1, 0, 0],
                Flow::Branch(Condition::Flags(15), 0x1106),
            ),
            (
                &[0xe2, 0x00],
                Flow::Branch(Condition::Loop(u64::MAX), 0x1002),
            ),
            (
                &[0x67, 0xe3, 0x00],
                Flow::Branch(Condition::CounterZero(u32::MAX as u64), 0x1003),
            ),
            (&[0xeb, 0xfe], Flow::Jump(0x1000)),
            (&[0xff, 0xe0], Flow::JumpIndirect),
            (&[0xff, 0x25, 0, 0, 0, 0], Flow::JumpIndirect),
            (&[0xe8, 0, 0, 0, 0], Flow::Call(0x1005)),
            (&[0xff, 0x10], Flow::CallIndirect),
            (&[0xff, 0x18], Flow::Odd), // far call
            (&[0xc3], Flow::Return),
            (&[0xc2, 8, 0], Flow::Return),
            (&[0xcb], Flow::Odd),
            (&[0x48, 0xcf], Flow::Odd),
            (&[0x0f, 0x05], Flow::Gate),
            (&[0x0f, 0x34], Flow::Gate),
            (&[0xcd, 0x80], Flow::Gate),
            (&[0xcc], Flow::Gate),
            (&[0x0f, 0x31], Flow::Gate),
            (&[0x0f, 0x01, 0xf9], Flow::Gate),
            (&[0x0f, 0xa2], Flow::Gate),
            (&[0xf4], Flow::Gate),
            (&[0x0f, 0x0b], Flow::Gate),
            (&[0xc7, 0xf8, 0, 0, 0, 0], Flow::Odd), // xbegin
        ];
        for (code, flow) in cases {
            assert_eq!(insn(code).flow, *flow, "{code:02x?}");
        }
        assert!(decode(0, &[0x0f]).is_none());
        assert!(decode(0, &[0x06]).is_none());
        assert!(decode(0, &[]).is_none());
    }

    #[test]
    fn what_stores() {
        // mov %eax,(%rdi); add $1,(%rdi); movaps %xmm0,(%rdi)
        for code in [&[0x89, 0x07][..], &[0x83, 0x07, 1], &[0x0f, 0x29, 0x07]] {
            assert!(insn(code).stores(), "{code:02x?}");
        }
        // mov (%rdi),%eax; cmp %eax,(%rdi); push (%rdi); jmp *(%rdi)
        for code in [
            &[0x8b, 0x07][..],
            &[0x39, 0x07],
            &[0xff, 0x37],
            &[0xff, 0x27],
        ] {
            assert!(!insn(code).stores(), "{code:02x?}");
        }
    }

    #[test]
    fn what_can_move() {
        for code in [
            &[0x90][..],
            &[0x75, 0],
            &[0xc3],
            &[0xff, 0x25, 0, 0, 0, 0],
            &[0xc5, 0xf9, 0xd9, 0xc1],
        ] {
            assert!(insn(code).can_move(), "{code:02x?}");
        }
        // call, x87, rep, syscall, EIP-relative
        for code in [
            &[0xe8, 0, 0, 0, 0][..],
            &[0xd9, 0xe8],
            &[0xf3, 0xa4],
            &[0x0f, 5],
            &[0x67, 0x8b, 5, 0, 0, 0, 0],
        ] {
            assert!(!insn(code).can_move(), "{code:02x?}");
        }
    }

    #[test]
    fn operands_and_displacements() {
        let mut regs = Regs {
            fs_base: 0x7000,
            ..Regs::default()
        };
        regs.gpr[RSP] = 0x2000;
        regs.gpr[3] = 0x5000;
        regs.gpr[6] = 0x10;
        let list = |code: &[u8]| {
            let o = insn(code).operands(&regs);
            (
                o.list()
                    .iter()
                    .map(|o| (o.addr, o.size))
                    .collect::<Vec<_>>(),
                o.more,
            )
        };
        assert_eq!(
            list(&[0x48, 0x89, 0x44, 0xb3, 0x08]),
            (vec![(0x5048, 8)], false)
        ); // mov [rbx+rsi*4+8],rax
        assert_eq!(
            list(&[0x64, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]),
            (vec![(0x7028, 4)], false)
        ); // mov eax,fs:[0x28]
        assert_eq!(list(&[0x50]), (vec![(0x1ff8, 8)], false)); // push rax
        assert_eq!(list(&[0xff, 0x33]), (vec![(0x5000, 8), (0x1ff8, 8)], false)); // push [rbx]
        assert_eq!(list(&[0xe8, 0, 0, 0, 0]), (vec![(0x1ff8, 8)], false)); // call
        assert_eq!(list(&[0x48, 0x8d, 0x03]), (vec![], false)); // lea
        assert_eq!(list(&[0x0f, 0xab, 0x03]), (vec![(0x5000, 4)], true)); // bts [rbx],eax
        assert!(list(&[0xf3, 0x48, 0xab]).1); // rep stosq
        assert!(list(&[0x48, 0x0f, 0xae, 0x23]).1); // xsave
        let rip = insn(&[0x48, 0x83, 0x05, 0x10, 0, 0, 0, 0x01]); // add qword [rip+16],1
        assert_eq!((rip.rip_disp, rip.rip_target()), (Some(3), Some(0x1018)));
        assert_eq!(
            rip.operands(&regs).list(),
            [Operand {
                addr: 0x1018,
                size: 8
            }]
        );
        assert_eq!(insn(&[0x90]).rip_disp, None);
    }
}
