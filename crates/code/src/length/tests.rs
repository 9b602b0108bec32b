//! Lengths by tables, against a whole decoding: by `iced-x86`, whose lengths [`crate::decode`] has.

#[path = "../../tests/instructions/mod.rs"]
mod instructions;

use super::*;
use crate::decode::{decode, Insn};
use instructions::{code_of_this_process, likely, numbers};
use proptest::prelude::*;

/// Where the instructions lie that are looked at.
const PC: u64 = 0x1000;

/// What the tables say agrees with the decoder's opinion, where that is an instruction.
fn agrees(code: &[u8; WINDOW]) {
    if let Some(insn) = decode(PC, &code[..15]) {
        agrees_with(&insn, code);
    }
}

/// Of the memory that it names: the address that takes no register, and the displacement of one that does.
fn agrees_on_memory(insn: &Insn, fixed: Option<u64>, displacement: Option<i32>) {
    let Some(place) = insn.place() else {
        return;
    };
    let wanted = place.base.is_none().then_some(place.offset);
    match place.index {
        None => assert_eq!(fixed, wanted, "{:02x?}", insn.bytes()),
        // What takes an index may be told to be fixed.
        Some(_) => assert!(fixed.is_none() || fixed == wanted, "{:02x?}", insn.bytes()),
    }
    let wanted = place.base.map_or(0, |_| place.offset);
    let displacement = i64::from(displacement.unwrap_or(0)) as u64;
    assert_eq!(displacement, wanted, "{:02x?}", insn.bytes());
}

/// Is it in the tables?
fn agrees_with(insn: &Insn, code: &[u8; WINDOW]) -> bool {
    let plain = Plain::of(code);
    if let Some(plain) = plain {
        assert_eq!(plain.len, insn.bytes().len(), "{code:02x?}");
        assert!(insn.loads_constant().is_none(), "{code:02x?}");
        agrees_on_memory(insn, plain.fixed(insn.end()), plain.displacement());
    }
    let Some(shape) = Shape::of(code) else {
        assert!(plain.is_none(), "{code:02x?}");
        return false;
    };
    assert_eq!(shape.len, insn.bytes().len(), "{code:02x?}");
    assert_eq!(shape.locked, insn.is_locked(), "{code:02x?}");
    let modrm = shape.modrm;
    assert!(modrm != 0 || insn.place().is_none(), "{code:02x?}");
    // Displacements of one byte behind an EVEX prefix count in units of their operand (SDM 2, 2.7.5).
    let is_evex = shape.opcode == 0 && code[0] == 0x62;
    if modrm != 0 && !is_evex {
        agrees_on_memory(insn, shape.fixed(PC, code), shape.displacement(code));
    }
    if let Some(displacement) = insn.rip_disp {
        assert_eq!(modrm + 1, displacement as usize, "{code:02x?}");
    }
    true
}

#[test]
fn lengths_of_all_opcodes_with_all_operands() {
    let prefixes: [&[u8]; 12] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0xf0],
        &[0x64],
        &[0x48],
        &[0x41],
        &[0x66, 0x48],
        &[0xf3, 0x4f],
        &[0xf0, 0x44],
        &[0x66, 0xf3, 0x2e, 0x47],
    ];
    let maps: [&[u8]; 12] = [
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc5, 0xf9],
        &[0xc5, 0x7e],
        &[0xc4, 0xe1, 0x79],
        &[0xc4, 0x42, 0xfd],
        &[0xc4, 0xe3, 0x7d],
        &[0x62, 0xf1, 0x7d, 0x48],
        &[0x62, 0xb2, 0xfd, 0x29],
        &[0x62, 0xf3, 0x7d, 0xcf],
    ];
    for prefix in prefixes {
        for map in maps {
            for (opcode, modrm) in (0..=255).flat_map(|o| (0..=255).map(move |m| (o, m))) {
                for sib in [0x24, 0x25, 0x05, 0x90] {
                    let mut code = [0x11; WINDOW];
                    let head = [prefix, map, &[opcode, modrm, sib]].concat();
                    code[..head.len()].copy_from_slice(&head);
                    agrees(&code);
                }
            }
        }
    }
}

/// The scale of no index means nothing.
#[test]
fn an_address_without_registers_may_have_a_scale() {
    for sib in [0x25, 0x65, 0xa5, 0xe5] {
        // lock incl 0x601040
        let mut code = [0; WINDOW];
        code[..8].copy_from_slice(&[0xf0, 0xff, 0x04, sib, 0x40, 0x10, 0x60, 0]);
        let shape = Shape::of(&code).expect("is in the tables");
        assert_eq!(shape.fixed(PC, &code), Some(0x60_1040), "{sib:#x}");
        // add %eax,0x601040
        code[..8].copy_from_slice(&[0x01, 0x04, sib, 0x40, 0x10, 0x60, 0, 0]);
        let plain = Plain::of(&code).expect("is plain");
        assert_eq!(plain.fixed(PC), Some(0x60_1040), "{sib:#x}");
    }
}

#[test]
fn most_is_in_the_tables() {
    let known: [(&[u8], usize); 6] = [
        (&[0x48, 0x8b, 0x44, 0x24, 0x08], 5),
        (&[0xf0, 0x0f, 0xb1, 0x15, 0, 0, 0, 0], 8),
        (&[0xe8, 0, 0, 0, 0], 5),
        (&[0xf7, 0x05, 0, 0, 0, 0, 1, 0, 0, 0], 10),
        (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], 10),
        (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 0x01], 6),
    ];
    for (bytes, len) in known {
        let mut code = [0; WINDOW];
        code[..bytes.len()].copy_from_slice(bytes);
        assert_eq!(Shape::of(&code).map(|s| s.len), Some(len), "{bytes:02x?}");
    }
}

#[test]
fn lengths_in_real_code() {
    for (path, code) in code_of_this_process() {
        let (mut seen, mut known, mut at) = (0u64, 0u64, 0);
        while at < code.len() {
            let mut window = [0; WINDOW];
            let len = WINDOW.min(code.len() - at);
            window[..len].copy_from_slice(&code[at..at + len]);
            let Some(insn) = decode(PC, &window[..len.min(15)]) else {
                // What lies between functions.
                at += 1;
                continue;
            };
            seen += 1;
            known += u64::from(agrees_with(&insn, &window));
            at += insn.bytes().len();
        }
        // Else whoever searches code is slow.
        let most = known * 100 >= seen * 99;
        assert!(most, "{path}: {known} of {seen} are in the tables");
        assert!(seen > 1000, "{path}: {seen} instructions");
    }
}

#[test]
fn lengths_of_instructions_that_nobody_has_written() {
    const CASES: u32 = 2_000_000;
    let (mut next, mut seen) = (numbers(), 0);
    for _ in 0..CASES {
        let mut code = [0; WINDOW];
        code[..15].copy_from_slice(&likely(&mut next));
        if let Some(insn) = decode(PC, &code[..15]) {
            seen += 1;
            agrees_with(&insn, &code);
        }
    }
    assert!(seen > CASES / 3, "{seen} of {CASES} are instructions");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]
    #[test]
    fn lengths_agree_with_the_decoder(code: [u8; WINDOW]) {
        agrees(&code);
    }
}
