//! The stack of a thread, from its registers and a copy of its memory, by the tables for unwinding that every program and library has
//! (`.eh_frame`; System V ABI for x86-64, 3.7; DWARF 5, 6.4).

use crate::mappings::{content, Mappings, Place};
use crate::symbols::address_of;
use addr2line::gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use reprise_abi::races::REGISTERS;

/// Most frames.
const MAX_FRAMES: usize = 64;
/// Registers that tables name: the general ones, and the return address.
const NAMED: usize = 17;
const RSP: usize = 7;
const RETURN: usize = 16;
/// The numbers in tables of the registers that are copied.
const COPIED: [usize; REGISTERS] = [3, 6, RSP, 12, 13, 14, 15, RETURN];

/// The registers of a frame that are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers([Option<u64>; NAMED]);

impl Registers {
    /// From those that a replay has left.
    pub fn of(copied: [u64; REGISTERS]) -> Registers {
        let mut all = [None; NAMED];
        for (number, value) in COPIED.into_iter().zip(copied) {
            all[number] = Some(value);
        }
        Registers(all)
    }

    fn get(&self, r: Register) -> Option<u64> {
        self.0.get(r.0 as usize).copied().flatten()
    }
}

/// Functions and lines, the innermost first. `stack` is what lies at the stack pointer.
pub(crate) fn unwind(mappings: &Mappings, mut registers: Registers, stack: &[u64]) -> Vec<String> {
    let mut lines = Vec::new();
    let base = registers.0[RSP].unwrap_or(0);
    let word = |at: u64| {
        let i = at.checked_sub(base).filter(|d| d % 8 == 0)? / 8;
        stack.get(i as usize).copied()
    };
    for _ in 0..MAX_FRAMES {
        let Some(pc) = registers.0[RETURN].filter(|pc| *pc != 0) else {
            break;
        };
        // A return address may belong to what comes after the call.
        let Some(place) = mappings.at(pc - 1) else {
            break;
        };
        lines.extend(mappings.lines(pc - 1));
        let Some(caller) = caller(&place, &registers, word) else {
            break;
        };
        registers = caller;
    }
    lines
}

/// The registers of whoever called the function at this place.
fn caller(p: &Place, r: &Registers, word: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    let data = content(&p.path)?;
    let file = object::File::parse(&data).ok()?;
    let address = address_of(&file, p.offset)?;
    let section = file.section_by_name(".eh_frame")?;
    let bytes = section.data().ok()?;
    let table = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(text);
    let mut context = UnwindContext::new();
    let row = table
        .unwind_info_for_address(&bases, &mut context, address, EhFrame::cie_from_offset)
        .ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return None;
    };
    let cfa = r.get(*register)?.wrapping_add_signed(*offset);
    let mut up = *r;
    for (number, to) in up.0.iter_mut().enumerate() {
        *to = match row.register(Register(number as u16)) {
            RegisterRule::Offset(n) => word(cfa.wrapping_add_signed(n)),
            RegisterRule::ValOffset(n) => Some(cfa.wrapping_add_signed(n)),
            RegisterRule::SameValue => *to,
            RegisterRule::Register(other) => r.get(other),
            // The outermost function says so of the return address. Of others, nothing is said: they keep their values.
            RegisterRule::Undefined if number != RETURN => *to,
            _ => None,
        };
    }
    up.0[RSP] = Some(cfa);
    Some(up)
}
