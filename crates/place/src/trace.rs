//! The loop that a place lies in, so that its stub can copy the whole of it.
//!
//! A detour at every round costs a small loop more than its own work does: two jumps, and the forwarding of memory that the processor
//! predicts by the instructions' addresses. A loop that runs inside the stub has neither. What is traced is one way around, from the
//! place back to it; every other way leaves the copy for the program's own code, and comes back through the patch.

use reprise_code::decode::{Condition, Flow, Insn};
use reprise_code::memory::Memory;
use reprise_code::patchable::Place;
use reprise_code::regs::{RCX, RSP};

/// Most instructions of a loop.
pub const MAX_TRACE: usize = 32;
/// Most instructions that are looked at to find the way around.
const MAX_LOOKED_AT: u32 = 256;
/// Most branches on the way that can be tried both ways.
const MAX_CHOICES: usize = 8;

/// An instruction on the way around.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The instruction.
    pub insn: Insn,
    /// The way follows its branch, instead of going on after it.
    pub taken: bool,
}

/// One way around a loop.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    steps: [Option<Step>; MAX_TRACE],
    count: usize,
}

/// A branch that can be tried the other way.
#[derive(Clone, Copy)]
struct Choice {
    /// The way up to and without the branch.
    count: usize,
    insn: Insn,
    taken: bool,
}

impl Trace {
    /// The shortest-sighted way from a place back to it, through code for which `fixed` holds: that nothing writes to while the loop runs.
    pub fn around<M: Memory + ?Sized>(
        place: &Place,
        memory: &M,
        fixed: impl Fn(&Insn) -> bool,
    ) -> Option<Trace> {
        let mut trace = Trace {
            steps: [None; MAX_TRACE],
            count: 0,
        };
        // The stub stands for the patched instructions one after the other.
        let (last, before) = place.insns().split_last()?;
        for insn in before {
            trace.push(*insn, false)?;
        }
        let mut choices = [None; MAX_CHOICES];
        let mut open = 0;
        let mut pc = last.pc;
        for _ in 0..MAX_LOOKED_AT {
            let step = Insn::at(pc, memory).filter(|i| i.can_move() && fixed(i));
            let mut way = step.and_then(|insn| trace.follow(insn, &mut choices, &mut open));
            while way.is_none() {
                // The last branch, the other way.
                open = open.checked_sub(1)?;
                let choice: Choice = choices[open]?;
                trace.count = choice.count;
                way = trace.push(choice.insn, choice.taken).map(|()| {
                    match (choice.taken, choice.insn.flow) {
                        (true, Flow::Branch(_, target)) => target,
                        _ => choice.insn.end(),
                    }
                });
            }
            pc = way?;
            if pc == place.pc {
                return Some(trace);
            }
        }
        None
    }

    /// Adds an instruction; where the way goes on.
    fn follow(
        &mut self,
        insn: Insn,
        choices: &mut [Option<Choice>; MAX_CHOICES],
        open: &mut usize,
    ) -> Option<u64> {
        if self.steps().any(|s| s.insn.pc == insn.pc) {
            return None; // another loop, inside this one
        }
        match insn.flow {
            Flow::Next => self.push(insn, false).map(|()| insn.end()),
            Flow::Jump(target) => self.push(insn, true).map(|()| target),
            Flow::Branch(condition, target) => {
                let start = self.steps().next().map_or(insn.pc, |s| s.insn.pc);
                let can_invert = matches!(condition, Condition::Flags(_));
                let back = target <= insn.pc;
                let taken = target == start || (back && can_invert && insn.end() != start);
                if *open < MAX_CHOICES && (taken || can_invert || target == start) {
                    choices[*open] = Some(Choice {
                        count: self.count,
                        insn,
                        taken: !taken,
                    });
                    *open += 1;
                }
                self.push(insn, taken)
                    .map(|()| if taken { target } else { insn.end() })
            }
            _ => None,
        }
    }

    fn push(&mut self, insn: Insn, taken: bool) -> Option<()> {
        *self.steps.get_mut(self.count)? = Some(Step { insn, taken });
        self.count += 1;
        Some(())
    }

    /// The way, beginning at the place; the last step leads back to it.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps[..self.count].iter().flatten()
    }

    /// rcx is neither read nor written on the way.
    pub fn leaves_rcx_alone(&self) -> bool {
        self.steps()
            .all(|s| s.insn.is_explicit() && !s.insn.names(RCX as u8))
    }

    /// Is this register the same all the way around? (It is only said where that is easy to see.)
    pub fn keeps(&self, register: u8) -> bool {
        register as usize != RSP
            && self
                .steps()
                .all(|s| s.insn.is_explicit() && !s.insn.writes(register))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_code::patchable::classify;

    /// Code, and where it lies.
    struct Code(u64, Vec<u8>);

    impl Memory for Code {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let from = addr.checked_sub(self.0).map(|at| at as usize);
            let bytes = from.and_then(|at| self.1.get(at..at.checked_add(buf.len())?));
            bytes.map(|b| buf.copy_from_slice(b)).is_some()
        }
    }

    const PC: u64 = 0x5555_5555_0000;

    fn around(code: &[u8], at: u64) -> Option<Vec<(u64, bool)>> {
        let mut bytes = code.to_vec();
        bytes.resize(256, 0x90);
        let memory = Code(PC, bytes);
        let place = *classify(PC + at, &memory).best()?;
        let trace = Trace::around(&place, &memory, |_| true)?;
        Some(trace.steps().map(|s| (s.insn.pc - PC, s.taken)).collect())
    }

    /// addq $1,-8(%rbp); mov 0x100(%rip),%rax; cmp %rax,-8(%rbp); jb to the addq
    const COUNTS: [u8; 18] = [
        0x48, 0x83, 0x45, 0xf8, 1, 0x48, 0x8b, 5, 0, 1, 0, 0, 0x48, 0x39, 0x45, 0xf8, 0x72, 0xee,
    ];

    #[test]
    fn from_each_of_its_instructions() {
        let round = [(0, false), (5, false), (12, false), (16, true)];
        assert_eq!(around(&COUNTS, 0).unwrap(), round);
        assert_eq!(
            around(&COUNTS, 5).unwrap(),
            [(5, false), (12, false), (16, true), (0, false)]
        );
    }

    #[test]
    fn past_a_branch_out_and_through_a_jump() {
        // 0: test eax,imm; 5: je +3 (to 10); 7: nopl; 10: jmp to 0
        let code = [0xa9, 1, 0, 0, 0, 0x74, 3, 0x0f, 0x1f, 0, 0xeb, 0xf4];
        assert_eq!(
            around(&code, 0).unwrap(),
            [(0, false), (5, false), (7, false), (10, true)]
        );
        // The way straight on ends in a return, so the branch is followed: 5: je +1 (to 8); 7: ret; 8: jmp to 0
        let code = [0xa9, 1, 0, 0, 0, 0x74, 1, 0xc3, 0xeb, 0xf6];
        assert_eq!(
            around(&code, 0).unwrap(),
            [(0, false), (5, true), (8, true)]
        );
    }

    #[test]
    fn none_where_there_is_no_loop_or_a_call_in_it() {
        assert_eq!(around(&[0xb8, 1, 2, 3, 4, 0xc3], 0), None);
        // test eax,imm; call; jmp to 0
        let code = [0xa9, 1, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xeb, 0xf4];
        assert_eq!(around(&code, 0), None);
        // An inner loop: 0: test eax,imm; 5: dec ecx; 7: jnz to 5; 9: jmp to 0. The inner one is left at once.
        let code = [0xa9, 1, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xeb, 0xf5];
        assert_eq!(
            around(&code, 0).unwrap(),
            [(0, false), (5, false), (7, false), (9, true)]
        );
    }

    /// libgomp's wait: the place is in the middle of a loop that is entered there.
    #[test]
    fn a_loop_that_is_entered_in_its_middle() {
        // 0: pause; 2: add $1,%rax; 6: cmp %rdx,%rax; 9: je out; 11: mov 0(%rbp),%ecx; 14: cmp %ecx,%ebx; 16: je 0
        let code = [
            0xf3, 0x90, 0x48, 0x83, 0xc0, 1, 0x48, 0x39, 0xd0, 0x74, 0x2d, 0x8b, 0x4d, 0, 0x39,
            0xcb, 0x74, 0xee,
        ];
        assert_eq!(
            around(&code, 11).unwrap(),
            [
                (11, false),
                (14, false),
                (16, true),
                (0, false),
                (2, false),
                (6, false),
                (9, false)
            ]
        );
    }

    #[test]
    fn registers_on_the_way() {
        let mut bytes = COUNTS.to_vec();
        bytes.resize(256, 0x90);
        let memory = Code(PC, bytes);
        let place = *classify(PC, &memory).best().unwrap();
        let trace = Trace::around(&place, &memory, |_| true).unwrap();
        assert!(trace.leaves_rcx_alone());
        assert!(trace.keeps(5) && !trace.keeps(0) && !trace.keeps(4));
        // dec ecx; nopl; jnz
        let mut bytes = vec![0xff, 0xc9, 0x0f, 0x1f, 0, 0x75, 0xf9];
        bytes.resize(64, 0x90);
        let memory = Code(PC, bytes);
        let place = *classify(PC, &memory).best().unwrap();
        let trace = Trace::around(&place, &memory, |_| true).unwrap();
        assert!(!trace.leaves_rcx_alone() && !trace.keeps(1));
    }
}
