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
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// From those that a program or its replay has left.
    pub fn of(copied: &[AtomicU64; REGISTERS]) -> Registers {
        let mut all = [None; NAMED];
        for (number, value) in COPIED.into_iter().zip(copied) {
            all[number] = Some(value.load(Relaxed));
        }
        Registers(all)
    }

    fn get(&self, r: Register) -> Option<u64> {
        self.0.get(r.0 as usize).copied().flatten()
    }
}

/// So many bytes of a stack that a program or its replay has left.
pub(crate) fn words(stack: &[AtomicU64], len: &AtomicU64) -> Vec<u64> {
    let len = (len.load(Relaxed) as usize / 8).min(stack.len());
    stack[..len].iter().map(|w| w.load(Relaxed)).collect()
}

/// How the registers of a function's caller are found at a place in it: the address of its frame, by a register, and where each register is.
#[derive(Clone)]
struct Row {
    frame: (Register, i64),
    rules: [RegisterRule<usize>; NAMED],
}

/// What is known of the code at an address.
struct Known {
    /// Functions and lines, the innermost first.
    lines: Vec<String>,
    row: Option<Row>,
}

/// Goes through stacks. What the files tell of an address is asked once.
pub(crate) struct Unwinder<'a> {
    mappings: &'a Mappings,
    known: HashMap<u64, Option<Known>>,
}

impl Unwinder<'_> {
    /// For a process with these mappings.
    pub fn new(mappings: &Mappings) -> Unwinder<'_> {
        Unwinder {
            mappings,
            known: HashMap::new(),
        }
    }

    /// Functions and lines, the innermost first. `stack` is what lies at the stack pointer.
    pub fn stack(&mut self, mut registers: Registers, stack: &[u64]) -> Vec<String> {
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
            let Some(known) = self.at(pc - 1) else {
                break;
            };
            lines.extend(known.lines.iter().cloned());
            let caller = known
                .row
                .as_ref()
                .and_then(|row| row.caller(&registers, word));
            let Some(caller) = caller else {
                break;
            };
            registers = caller;
        }
        lines
    }

    fn at(&mut self, pc: u64) -> Option<&Known> {
        let mappings = self.mappings;
        let ask = || {
            let place = mappings.at(pc)?;
            Some(Known {
                lines: mappings.lines(pc),
                row: row(&place),
            })
        };
        self.known.entry(pc).or_insert_with(ask).as_ref()
    }
}

/// What the table for unwinding says of this place.
fn row(p: &Place) -> Option<Row> {
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
    Some(Row {
        frame: (*register, *offset),
        rules: std::array::from_fn(|number| row.register(Register(number as u16))),
    })
}

impl Row {
    /// The registers of whoever called the function.
    fn caller(&self, r: &Registers, word: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
        let (register, offset) = self.frame;
        let cfa = r.get(register)?.wrapping_add_signed(offset);
        let mut up = *r;
        for (number, to) in up.0.iter_mut().enumerate() {
            *to = match self.rules[number] {
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
}
