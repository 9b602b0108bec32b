//! See `fuzz_targets/lengths.rs`.

use reprise_code::decode::{decode, decode_all, Insn, MAX_INSN};
use reprise_code::length::{Plain, Shape, WINDOW};

/// Where the instructions lie.
const PC: u64 = 0x1000;
/// What lies behind the bytes: it has the length of an instruction, too.
const BEHIND: u8 = 0x90;

/// Reads `data` as code, from each of its bytes on.
pub fn lengths(data: &[u8]) {
    for at in 0..data.len() {
        let mut code = [BEHIND; WINDOW];
        let len = WINDOW.min(data.len() - at);
        code[..len].copy_from_slice(&data[at..at + len]);
        // The tables look at any bytes; only of instructions their answer means something.
        let told = (Plain::of(&code), Shape::of(&code));
        if let Some(insn) = decode(PC, &code[..MAX_INSN]) {
            agree(&insn, told);
        }
    }
    let mut end = PC;
    decode_all(PC, data, |insn| {
        assert_eq!(insn.pc, end);
        end = insn.end();
        0
    });
    assert!(end - PC <= data.len() as u64);
}

/// What the tables tell of an instruction is what the decoder does.
fn agree(insn: &Insn, (plain, shape): (Option<Plain>, Option<Shape>)) {
    let bytes = insn.bytes();
    if let Some(plain) = plain {
        assert_eq!(plain.len, bytes.len(), "{bytes:02x?}");
        assert!(shape.is_some(), "{bytes:02x?}");
    }
    if let Some(shape) = shape {
        assert_eq!(shape.len, bytes.len(), "{bytes:02x?}");
        assert_eq!(shape.locked, insn.is_locked(), "{bytes:02x?}");
        let has_modrm = shape.modrm != 0;
        assert!(has_modrm || insn.place().is_none(), "{bytes:02x?}");
    }
}
