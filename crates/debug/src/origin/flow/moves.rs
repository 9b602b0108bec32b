//! The instructions that move bytes unchanged, one by one, byte for byte.

use super::{each, index, Byte, Location, Move, Step, XMM, ZERO};
use crate::debuggee::RSP;
use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

impl Step<'_> {
    /// What it moves where, if it does nothing else; `None` where it is not known as a move.
    pub(super) fn moves(&self) -> Option<Vec<Move>> {
        use Mnemonic as M;
        let i = self.i;
        let second = || self.bytes(1);
        match i.mnemonic() {
            M::Movsb | M::Movsw | M::Movsq => self.string_move(),
            M::Movsd if i.code() == Code::Movsd_m32_m32 => self.string_move(),
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => {
                if self.has_no_rounds() {
                    return Some(Vec::new());
                }
                let dest = self.location(0)?;
                Some(vec![(dest, self.bytes(1)?)])
            }
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq if !i.has_rep_prefix() => self.to(second()?),
            M::Mov
                if i.op_kind(0) == OpKind::Register
                    && index(i.op0_register().full_register()).is_none() =>
            {
                None
            }
            M::Mov
            | M::Movnti
            | M::Movzx
            | M::Movaps
            | M::Movups
            | M::Movapd
            | M::Movupd
            | M::Movdqa
            | M::Movdqu
            | M::Lddqu
            | M::Movq
            | M::Movd
            | M::Movntdq
            | M::Movntdqa
            | M::Movntps
            | M::Movntpd
            | M::Vmovaps
            | M::Vmovups
            | M::Vmovapd
            | M::Vmovupd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vmovdqa32
            | M::Vmovdqa64
            | M::Vmovdqu8
            | M::Vmovdqu16
            | M::Vmovdqu32
            | M::Vmovdqu64
            | M::Vlddqu
            | M::Vmovq
            | M::Vmovd
            | M::Vmovntdq
            | M::Vmovntdqa
            | M::Vmovntps
            | M::Vmovntpd
            | M::Kmovb
            | M::Kmovw
            | M::Kmovd
            | M::Kmovq
                if i.op_mask() == Register::None =>
            {
                self.to(second()?)
            }
            M::Movsx | M::Movsxd => {
                let mut bytes = second()?;
                let top = *bytes.last()?;
                if let Byte::Of(top) = top {
                    bytes.resize(self.location(0)?.len() as usize, Byte::Sign(top));
                }
                self.to(bytes)
            }
            M::Cdqe | M::Cwde | M::Cbw => {
                let (from, to) = match i.mnemonic() {
                    M::Cdqe => (Register::EAX, 8),
                    M::Cwde => (Register::AX, 4),
                    _ => (Register::AL, 2),
                };
                let mut bytes = each(&Location::register(from));
                if let Byte::Of(top) = *bytes.last()? {
                    bytes.resize(to, Byte::Sign(top));
                }
                bytes.resize(if to == 4 { 8 } else { to }, ZERO);
                let dest = Location::Register {
                    whole: Register::RAX,
                    from: 0,
                    len: bytes.len() as u32,
                };
                Some(vec![(dest, bytes)])
            }
            M::Movss | M::Vmovss => self.scalar(4),
            M::Movsd | M::Vmovsd => self.scalar(8),
            M::Movhps | M::Movhpd | M::Vmovhps | M::Vmovhpd => {
                if i.op_kind(0) != OpKind::Register {
                    return self.to(second()?.get(8..16)?.to_vec());
                }
                let (rest, new) = self.both()?;
                self.to([rest.get(..8)?, new.get(..8)?].concat())
            }
            M::Movlps | M::Movlpd | M::Vmovlps | M::Vmovlpd => {
                if i.op_kind(0) != OpKind::Register {
                    return self.to(second()?.get(..8)?.to_vec());
                }
                let (rest, new) = self.both()?;
                self.to([new.get(..8)?, rest.get(8..16)?].concat())
            }
            M::Movlhps | M::Vmovlhps => {
                let (rest, new) = self.both()?;
                self.to([rest.get(..8)?, new.get(..8)?].concat())
            }
            M::Movhlps | M::Vmovhlps => {
                let (rest, new) = self.both()?;
                self.to([new.get(8..16)?, rest.get(8..16)?].concat())
            }
            M::Punpcklbw | M::Vpunpcklbw => self.interleaved(1, false),
            M::Punpcklwd | M::Vpunpcklwd => self.interleaved(2, false),
            M::Punpckldq | M::Vpunpckldq | M::Unpcklps | M::Vunpcklps => self.interleaved(4, false),
            M::Punpcklqdq | M::Vpunpcklqdq | M::Unpcklpd | M::Vunpcklpd => {
                self.interleaved(8, false)
            }
            M::Punpckhbw | M::Vpunpckhbw => self.interleaved(1, true),
            M::Punpckhwd | M::Vpunpckhwd => self.interleaved(2, true),
            M::Punpckhdq | M::Vpunpckhdq | M::Unpckhps | M::Vunpckhps => self.interleaved(4, true),
            M::Punpckhqdq | M::Vpunpckhqdq | M::Unpckhpd | M::Vunpckhpd => {
                self.interleaved(8, true)
            }
            M::Pinsrb | M::Vpinsrb => self.inserted(1),
            M::Pinsrw | M::Vpinsrw => self.inserted(2),
            M::Pinsrd | M::Vpinsrd => self.inserted(4),
            M::Pinsrq | M::Vpinsrq => self.inserted(8),
            M::Pextrb | M::Vpextrb => self.extracted(1),
            M::Pextrw | M::Vpextrw => self.extracted(2),
            M::Pextrd | M::Vpextrd => self.extracted(4),
            M::Pextrq | M::Vpextrq => self.extracted(8),
            M::Vinserti128 | M::Vinsertf128 => self.inserted(16),
            M::Vextracti128 | M::Vextractf128 => self.extracted(16),
            M::Pshufd | M::Vpshufd if self.location(0)?.len() as usize == XMM => {
                let (from, order) = (second()?, self.number());
                let pick = |n: usize| from.get(4 * (order >> (2 * n) & 3)..)?.get(..4);
                self.to([pick(0)?, pick(1)?, pick(2)?, pick(3)?].concat())
            }
            M::Psrldq | M::Vpsrldq if self.location(0)?.len() as usize == XMM => {
                let by = self.number().min(XMM);
                self.to(self.own()?.get(by..XMM)?.to_vec())
            }
            M::Pslldq | M::Vpslldq if self.location(0)?.len() as usize == XMM => {
                let by = self.number().min(XMM);
                let kept = self.own()?.get(..XMM - by)?.to_vec();
                self.to([vec![ZERO; by], kept].concat())
            }
            M::Palignr | M::Vpalignr if self.location(0)?.len() as usize == XMM => {
                let last = i.op_count().checked_sub(2)?;
                let all = [self.bytes(last)?, self.own()?, vec![ZERO; XMM]].concat();
                let by = self.number().min(2 * XMM);
                self.to(all.get(by..by + XMM)?.to_vec())
            }
            M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
            | M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vbroadcasti128
            | M::Vbroadcastf128
                if i.op_mask() == Register::None =>
            {
                let size = match i.mnemonic() {
                    M::Vpbroadcastb => 1,
                    M::Vpbroadcastw => 2,
                    M::Vpbroadcastd | M::Vbroadcastss => 4,
                    M::Vpbroadcastq | M::Vbroadcastsd => 8,
                    _ => 16,
                };
                let one = second()?.get(..size)?.to_vec();
                self.to(one.repeat(self.location(0)?.len() as usize / size))
            }
            M::Push => {
                let dest = self.pushed()?;
                let mut bytes = self.bytes(0)?;
                bytes.resize(dest.len() as usize, ZERO);
                Some(vec![(dest, bytes)])
            }
            M::Pop => {
                let len = self.location(0)?.len();
                let at = self.g.r[RSP];
                let mut moves = self.to(each(&Location::Memory { at, len }))?;
                moves.push((Location::register(Register::RSP), computed_later()));
                Some(moves).filter(|_| i.op0_register() != Register::RSP)
            }
            M::Call => {
                let to = i.next_ip().to_le_bytes();
                Some(vec![(self.pushed()?, to.map(Byte::Number).to_vec())])
            }
            M::Leave => {
                let at = self.g.r[6];
                Some(vec![(
                    Location::register(Register::RBP),
                    each(&Location::Memory { at, len: 8 }),
                )])
            }
            M::Xchg => {
                let (a, b) = (self.location(0)?, self.location(1)?);
                let mut moves = self.to(each(&b))?;
                let mut other = each(&a);
                let mut dest = b;
                if let Location::Register { whole, len: 4, .. } = b {
                    other.resize(8, ZERO);
                    dest = Location::register(whole);
                }
                moves.push((dest, other));
                Some(moves)
            }
            M::Bswap | M::Movbe => {
                let from = if i.mnemonic() == M::Bswap { 0 } else { 1 };
                let mut bytes = self.bytes(from)?;
                bytes.reverse();
                self.to(bytes)
            }
            M::Lea => {
                let plain = i.memory_index() == Register::None && i.memory_displacement64() == 0;
                match i.memory_base() {
                    Register::RIP => self.to(self.address()?),
                    Register::None if i.memory_index() == Register::None => {
                        self.to(self.address()?)
                    }
                    base if plain && base.is_gpr64() => self.to(each(&Location::register(base))),
                    _ => None,
                }
            }
            M::Xor
            | M::Sub
            | M::Pxor
            | M::Xorps
            | M::Xorpd
            | M::Vpxor
            | M::Vxorps
            | M::Vxorpd
            | M::Vpxord
            | M::Vpxorq
            | M::Psubb
            | M::Psubd
                if self.is_of_one_register() =>
            {
                self.to(Vec::new())
            }
            M::Pcmpeqb | M::Pcmpeqw | M::Pcmpeqd | M::Vpcmpeqb | M::Vpcmpeqw | M::Vpcmpeqd
                if self.is_of_one_register() && i.op0_register().is_vector_register() =>
            {
                let size = self.location(0)?.len() as usize;
                self.to(vec![Byte::Number(0xff); size])
            }
            M::And if self.is_number(1) && i.immediate(1) == 0 => self.to(Vec::new()),
            M::Or if self.is_number(1) && i.immediate(1) == u64::MAX => {
                let size = self.location(0)?.len() as usize;
                self.to(vec![Byte::Number(0xff); size])
            }
            _ if i.condition_code() != ConditionCode::None && is_conditional_move(i) => {
                match holds(i.condition_code(), self.g.flags) {
                    true => self.to(second()?),
                    false => {
                        let size = self.location(0)?.len() as usize;
                        self.to(vec![Byte::Same; size])
                    }
                }
            }
            _ => None,
        }
    }

    fn address(&self) -> Option<Vec<Byte>> {
        let at = self.i.memory_displacement64();
        Some(at.to_le_bytes().map(Byte::Number).to_vec())
    }

    fn is_of_one_register(&self) -> bool {
        let last = self.i.op_count().saturating_sub(1);
        let register = |n: u32| match self.i.op_kind(n) {
            OpKind::Register => self.i.op_register(n),
            _ => Register::None,
        };
        let one = register(last);
        one != Register::None && one == register(last.saturating_sub(1)) && last > 0
    }

    fn has_no_rounds(&self) -> bool {
        let i = self.i;
        (i.has_rep_prefix() || i.has_repne_prefix())
            && self.g.r[index(Register::RCX).unwrap_or(0)] == 0
    }

    fn string_move(&self) -> Option<Vec<Move>> {
        if self.has_no_rounds() {
            return Some(Vec::new());
        }
        let (dest, from) = (self.memory(0)?, self.memory(1)?);
        Some(vec![(dest, each(&from))])
    }

    /// Where a push puts what it pushes.
    fn pushed(&self) -> Option<Location> {
        let len = match self.i.stack_pointer_increment() {
            n @ -8..=-1 => n.unsigned_abs(),
            _ => return None,
        };
        Some(Location::Memory {
            at: self.g.r[RSP].wrapping_sub(len.into()),
            len,
        })
    }

    fn scalar(&self, size: usize) -> Option<Vec<Move>> {
        let last = self.i.op_count() - 1;
        let is_register = |n| self.i.op_kind(n) == OpKind::Register;
        let new = self.bytes(last)?.get(..size)?.to_vec();
        if !is_register(0) || !is_register(last) {
            return self.to(new);
        }
        let (rest, _) = self.both()?;
        self.to([&new, rest.get(size..XMM)?].concat())
    }

    fn interleaved(&self, size: usize, is_high: bool) -> Option<Vec<Move>> {
        let (_, other) = self.both()?;
        let own = self.own()?;
        let mut bytes = Vec::new();
        for lane in (0..self.location(0)?.len() as usize).step_by(XMM) {
            let begin = lane + if is_high { XMM / 2 } else { 0 };
            for at in (begin..begin + XMM / 2).step_by(size) {
                bytes.extend_from_slice(own.get(at..at + size)?);
                bytes.extend_from_slice(other.get(at..at + size)?);
            }
        }
        self.to(bytes)
    }

    fn inserted(&self, size: usize) -> Option<Vec<Move>> {
        let (mut rest, new) = self.both()?;
        let at = self.number() * size % rest.len().max(1);
        rest.get_mut(at..at + size)?
            .copy_from_slice(new.get(..size)?);
        self.to(rest)
    }

    fn extracted(&self, size: usize) -> Option<Vec<Move>> {
        let from = self.bytes(1)?;
        let at = self.number() * size % from.len().max(1);
        self.to(from.get(at..at + size)?.to_vec())
    }
}

/// The stack pointer behind a pop: no value that anybody looks for.
fn computed_later() -> Vec<Byte> {
    vec![Byte::Same; 8]
}

fn is_conditional_move(i: &Instruction) -> bool {
    i.op_count() == 2 && i.op_kind(0) == OpKind::Register && !i.is_jcc_short_or_near()
}

/// Does a condition hold with these flags?
fn holds(condition: ConditionCode, flags: u64) -> bool {
    let bit = |n: u32| flags >> n & 1 == 1;
    let (carry, parity, zero, sign, overflow) = (bit(0), bit(2), bit(6), bit(7), bit(11));
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => overflow,
        ConditionCode::no => !overflow,
        ConditionCode::b => carry,
        ConditionCode::ae => !carry,
        ConditionCode::e => zero,
        ConditionCode::ne => !zero,
        ConditionCode::be => carry || zero,
        ConditionCode::a => !carry && !zero,
        ConditionCode::s => sign,
        ConditionCode::ns => !sign,
        ConditionCode::p => parity,
        ConditionCode::np => !parity,
        ConditionCode::l => sign != overflow,
        ConditionCode::ge => sign == overflow,
        ConditionCode::le => zero || sign != overflow,
        ConditionCode::g => !zero && sign == overflow,
    }
}
