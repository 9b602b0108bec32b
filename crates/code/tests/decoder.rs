//! What [`reprise_code::decode`] says of an instruction beyond what `iced-x86` says, checked against `iced-x86` asked in other ways, and against
//! the bytes (Intel SDM 2, chapter 2 and appendix A): for all code of this process, and for instructions that nobody has written.

mod instructions;

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use instructions::{code_of_this_process, likely, numbers};
use reprise_code::decode::{decode, decode_all, Condition, Flow, Insn, MAX_INSN};

/// Where the instructions lie that are looked at, and where a copy of one would.
const PC: u64 = 0x1000;
const COPY: u64 = 0x7123_4567;

fn iced(pc: u64, code: &[u8]) -> Instruction {
    let code = &code[..code.len().min(MAX_INSN)];
    Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode()
}

/// All that is said of it is so; its bytes, if it is an instruction.
fn checked(code: &[u8]) -> Option<usize> {
    let i = iced(PC, code);
    let Some(insn) = decode(PC, code) else {
        assert!(i.is_invalid(), "{code:02x?}");
        return None;
    };
    let bytes = &code[..i.len()];
    assert_eq!(insn.bytes(), bytes);
    assert_eq!(insn.end(), PC + bytes.len() as u64, "{bytes:02x?}");
    assert_eq!(insn.is_locked(), i.has_lock_prefix(), "{bytes:02x?}");
    assert_control_flow(&insn, &i);
    assert_copies(&insn, &i);
    assert_place(&insn, &i);
    Some(bytes.len())
}

/// Prefixes, and what follows them.
fn parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    let is_prefix = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let at = bytes.iter().position(|b| !is_prefix(b));
    bytes.split_at(at.unwrap_or(0))
}

fn word(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Where control goes, told by the bytes.
fn assert_control_flow(insn: &Insn, i: &Instruction) {
    let bytes = insn.bytes();
    let (prefixes, opcode) = parts(bytes);
    let near = |len: usize| {
        let offset = match len {
            1 => bytes[bytes.len() - 1] as i8 as i64,
            _ => word(bytes, bytes.len() - 4).into(),
        };
        insn.end().wrapping_add_signed(offset)
    };
    let counter = match prefixes.contains(&0x67) {
        true => u64::from(u32::MAX),
        false => u64::MAX,
    };
    let repeats = prefixes.iter().any(|b| matches!(b, 0xf2 | 0xf3));
    // The bits of ModRM that are part of the opcode.
    let group = opcode.get(1).map_or(0, |modrm| modrm >> 3 & 7);
    let expected = match *opcode {
        [o @ 0x70..=0x7f, ..] => Flow::Branch(Condition::Flags(o & 15), near(1)),
        [0x0f, o @ 0x80..=0x8f, ..] => Flow::Branch(Condition::Flags(o & 15), near(4)),
        [0xe0, ..] => Flow::Branch(Condition::LoopNotEqual(counter), near(1)),
        [0xe1, ..] => Flow::Branch(Condition::LoopEqual(counter), near(1)),
        [0xe2, ..] => Flow::Branch(Condition::Loop(counter), near(1)),
        [0xe3, ..] => Flow::Branch(Condition::CounterZero(counter), near(1)),
        [0xeb, ..] => Flow::Jump(near(1)),
        [0xe9, ..] => Flow::Jump(near(4)),
        [0xe8, ..] => Flow::Call(near(4)),
        [0xff, ..] if group == 2 => Flow::CallIndirect,
        [0xff, ..] if group == 4 => Flow::JumpIndirect,
        [0xff, ..] if matches!(group, 3 | 5) => Flow::Odd,
        [0xc2 | 0xc3, ..] => Flow::Return,
        [0xca | 0xcb | 0xcf, ..] => Flow::Odd,
        // xbegin (behind xabort there is a next one, outside of transactions)
        [0xc7, 0xf8, ..] => Flow::Odd,
        // int3, int, int1, hlt
        [0xcc | 0xcd | 0xf1 | 0xf4, ..] => Flow::Gate,
        // syscall, ud2, ud1, ud0, rdtsc, sysenter, cpuid
        [0x0f, 0x05 | 0x0b | 0xb9 | 0xff | 0x31 | 0x34 | 0xa2, ..] => Flow::Gate,
        // rdtscp
        [0x0f, 0x01, 0xf9, ..] => Flow::Gate,
        // movs, cmps, stos, lods, scas
        [0xa4..=0xa7 | 0xaa..=0xaf, ..] if repeats => Flow::Repeat,
        _ => {
            // Nothing else goes anywhere but to the next one, or to the kernel.
            let stays = matches!(insn.flow, Flow::Next | Flow::Gate | Flow::Odd);
            let is_next = i.flow_control() == FlowControl::Next;
            let right = stays && (insn.flow != Flow::Next || is_next);
            assert!(right, "{bytes:02x?}: {:?}", insn.flow);
            return;
        }
    };
    assert_eq!(insn.flow, expected, "{bytes:02x?}");
}

/// A copy of what can be moved does the same elsewhere, once what is told to be relative is adjusted.
fn assert_copies(insn: &Insn, i: &Instruction) {
    let bytes = insn.bytes();
    let is_branch = |k| {
        matches!(
            k,
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
    };
    let branches = i.op_kinds().any(is_branch);
    if !insn.can_move() {
        // Not without a reason.
        let reason = insn.flow != Flow::Next || is_x87(i) || i.memory_base() == Register::EIP;
        assert!(reason, "{bytes:02x?} can be moved");
        return;
    }
    assert!(!is_x87(i), "{bytes:02x?}: x87 keeps its address");
    let told = matches!(insn.flow, Flow::Branch(..) | Flow::Jump(_));
    assert_eq!(branches, told, "{bytes:02x?}");
    let relative = i.is_ip_rel_memory_operand();
    assert_eq!(insn.rip_disp.is_some(), relative, "{bytes:02x?}");
    if branches {
        return;
    }
    let mut copy = bytes.to_vec();
    if let Some(at) = insn.rip_disp.map(usize::from) {
        let was = word(bytes, at);
        let target = insn.end().wrapping_add_signed(was.into());
        assert_eq!(insn.rip_target(), Some(target), "{bytes:02x?}");
        let Some(adjusted) = was.checked_sub((COPY - PC) as i32) else {
            // Too far away.
            return;
        };
        copy[at..at + 4].copy_from_slice(&adjusted.to_le_bytes());
    }
    let mut elsewhere = iced(COPY, &copy);
    assert_eq!(elsewhere.len(), bytes.len(), "{bytes:02x?}");
    // An instruction is the same as another one wherever they lie; of memory that counts from them it has the address.
    elsewhere.set_ip(i.ip());
    assert!(elsewhere == *i, "{bytes:02x?}: a copy does something else");
}

/// How it names memory, by registers of 64 bits: what `iced-x86` says makes the same address of all registers.
fn assert_place(insn: &Insn, i: &Instruction) {
    let bytes = insn.bytes();
    let registers = [i.memory_base(), i.memory_index()];
    let are_told = registers
        .iter()
        .all(|r| matches!(r, Register::None | Register::RIP) || r.is_gpr64());
    let has_memory = i.op_kinds().any(|k| k == OpKind::Memory);
    let Some(place) = insn.place() else {
        let reason = !has_memory || !are_told || i.segment_prefix() != Register::None;
        assert!(reason, "{bytes:02x?} names memory");
        return;
    };
    assert!(has_memory && are_told, "{bytes:02x?}");
    let value = |n: usize| 0x1234_5678_9abc_u64.rotate_left(5 * n as u32) | 1;
    let operand = i.op_kinds().position(|k| k == OpKind::Memory);
    let address = i.virtual_address(operand.unwrap_or(0) as u32, 0, |r, _, _| {
        Some(if r.is_gpr64() { value(r.number()) } else { 0 })
    });
    let of = |r: Option<u8>| r.map_or(0, |n| value(n.into()));
    let index = of(place.index).wrapping_mul(place.scale.into());
    let told = place
        .offset
        .wrapping_add(of(place.base))
        .wrapping_add(index);
    assert_eq!(Some(told), address, "{bytes:02x?}");
}

/// An instruction of the x87, or the one that waits for it.
fn is_x87(i: &Instruction) -> bool {
    const X87: [CpuidFeature; 5] = [
        CpuidFeature::FPU,
        CpuidFeature::FPU287,
        CpuidFeature::FPU287XL_ONLY,
        CpuidFeature::FPU387,
        CpuidFeature::FPU387SL_ONLY,
    ];
    i.mnemonic() == Mnemonic::Wait || i.cpuid_features().iter().any(|f| X87.contains(f))
}

#[test]
fn real_code() {
    for (path, code) in code_of_this_process() {
        let (mut seen, mut at) = (0, 0);
        while at < code.len() {
            // What is none lies between functions.
            let len = checked(&code[at..]);
            seen += u32::from(len.is_some());
            at += len.unwrap_or(1);
        }
        assert!(seen > 1000, "{path}: {seen} instructions");
    }
}

#[test]
fn instructions_that_nobody_has_written() {
    const CASES: usize = 2_000_000;
    let mut next = numbers();
    let all = (0..CASES).filter(|_| checked(&likely(&mut next)).is_some());
    let seen = all.count();
    assert!(seen > CASES / 3, "{seen} of {CASES} are instructions");
}

/// Stretches of code are decoded as their instructions are one by one.
#[test]
fn stretches_of_code() {
    for (path, code) in code_of_this_process() {
        let (mut at, mut seen) = (0, 0);
        while at < code.len() {
            decode_all(PC + at as u64, &code[at..], |insn| {
                let one = decode(PC + at as u64, &code[at..]).expect("an instruction");
                assert_eq!((insn.pc, insn.bytes()), (one.pc, one.bytes()));
                assert_eq!((insn.flow, insn.rip_target()), (one.flow, one.rip_target()));
                seen += 1;
                // Now and then some bytes are passed over.
                let over = usize::from(seen % 100 == 0) * 3;
                at += one.bytes().len() + over;
                over
            });
            // What is no instruction ends a stretch.
            at += 1;
        }
        assert!(seen > 1000, "{path}: {seen} instructions");
    }
}
