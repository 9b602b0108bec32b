//! Where a thread goes next, so that it can be stepped by a breakpoint there.
//!
//! The trap flag and the debug registers cost ten times more where they are virtualised (FACTS).

use reprise_code::decode::{Flow, Insn};
use reprise_code::memory::Memory;
use reprise_code::regs::Regs;

/// Where a thread will be after one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At this address.
    At(u64),
    /// In the runtime: the instruction is a system call, a trap or a fault.
    Gate,
    /// Not known.
    Unknown,
}

/// Where `insn` leads with these registers. A REP instruction leads to the one after it.
pub fn next<M: Memory + ?Sized>(insn: &Insn, regs: &Regs, memory: &M) -> Next {
    // An address that can't be read is a fault to come.
    let read = |target: Option<u64>| target.map_or(Next::Gate, Next::At);
    match insn.flow {
        Flow::Next | Flow::Repeat => Next::At(insn.end()),
        Flow::Branch(condition, target) => Next::At(if condition.holds(regs) {
            target
        } else {
            insn.end()
        }),
        Flow::Jump(target) | Flow::Call(target) => Next::At(target),
        Flow::JumpIndirect | Flow::CallIndirect => read(insn.indirect_target(regs, memory)),
        Flow::Return => read(memory.word(regs.rsp())),
        Flow::Gate => Next::Gate,
        Flow::Odd => Next::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Child;
    use reprise_code::decode::decode;
    use reprise_code::regs::{CF, OF, RCX, RSP, SF, ZF};

    struct Flat(u64, Vec<u8>);

    impl Memory for Flat {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let Some(at) = addr.checked_sub(self.0) else {
                return false;
            };
            let Some(bytes) = self.1.get(at as usize..).and_then(|b| b.get(..buf.len())) else {
                return false;
            };
            buf.copy_from_slice(bytes);
            true
        }
    }

    fn at(code: &[u8], regs: &Regs) -> Next {
        let mut memory = vec![0; 64];
        memory[8..16].copy_from_slice(&0x1234u64.to_le_bytes());
        next(&decode(0x1000, code).unwrap(), regs, &Flat(0x2000, memory))
    }

    #[test]
    fn all_conditions() {
        let holds = |flags: u64| -> Vec<u8> {
            let regs = Regs {
                rflags: flags,
                ..Regs::default()
            };
            (0..16)
                .filter(|c| at(&[0x70 + c, 0x10], &regs) == Next::At(0x1012))
                .collect()
        };
        assert_eq!(holds(0), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(holds(ZF), [1, 3, 4, 6, 9, 11, 13, 14]);
        assert_eq!(holds(CF | SF), [1, 2, 5, 6, 8, 11, 12, 14]);
        assert_eq!(holds(OF | SF), [0, 3, 5, 7, 8, 11, 13, 15]);
    }

    #[test]
    fn counters_stacks_and_pointers() {
        let mut regs = Regs::default();
        regs.gpr[RCX] = 1;
        regs.gpr[RSP] = 0x2008;
        regs.gpr[0] = 0x7777;
        assert_eq!(at(&[0xe2, 0x10], &regs), Next::At(0x1002));
        assert_eq!(at(&[0xe3, 0x10], &regs), Next::At(0x1002));
        regs.gpr[RCX] = 1 << 32;
        assert_eq!(at(&[0xe2, 0x10], &regs), Next::At(0x1012));
        assert_eq!(at(&[0x67, 0xe3, 0x10], &regs), Next::At(0x1013));
        assert_eq!(at(&[0xe1, 0x10], &regs), Next::At(0x1002));
        assert_eq!(at(&[0xe0, 0x10], &regs), Next::At(0x1012));
        assert_eq!(at(&[0xc3], &regs), Next::At(0x1234));
        assert_eq!(at(&[0xff, 0xe0], &regs), Next::At(0x7777));
        assert_eq!(at(&[0xff, 0x14, 0x24], &regs), Next::At(0x1234)); // call [rsp]
        assert_eq!(at(&[0xff, 0x20], &regs), Next::Gate); // jmp [rax], not readable
        assert_eq!(at(&[0x0f, 0x05], &regs), Next::Gate);
        assert_eq!(at(&[0xf3, 0xaa], &regs), Next::At(0x1002));
        assert_eq!(at(&[0xcb], &regs), Next::Unknown);
    }

    /// Single-steps real programs and compares every prediction with where the thread really went.
    #[test]
    fn real_programs_go_where_predicted() {
        for (program, args, skip) in [
            ("/bin/true", &[][..], 0),
            (
                "/bin/sh",
                &["-c", "x=1; while [ $x -lt 9 ]; do x=$((x+1)); done"][..],
                10_000,
            ),
            ("/usr/bin/sort", &["/etc/passwd"][..], 10_000),
        ] {
            let mut child = Child::spawn(program, args);
            for _ in 0..skip {
                if !child.step() {
                    break;
                }
            }
            let (mut compared, mut branches) = (0, 0);
            for _ in 0..8_000 {
                let Some(regs) = child.regs() else { break };
                let insn = Insn::at(regs.rip, &child).expect("an instruction that runs");
                let predicted = next(&insn, &regs, &child);
                if !child.step() {
                    break;
                }
                let Some(mut after) = child.regs() else { break };
                match predicted {
                    Next::At(pc) => {
                        // The trap flag stops in every round of a REP instruction.
                        while insn.flow == Flow::Repeat && after.rip == insn.pc {
                            assert!(child.step());
                            after = child.regs().unwrap();
                        }
                        assert_eq!(after.rip, pc, "{program}: {insn:x?}");
                        compared += 1;
                        branches += (insn.flow != Flow::Next) as u32;
                    }
                    Next::Gate => assert!(matches!(insn.flow, Flow::Gate), "{insn:x?}"),
                    Next::Unknown => assert!(matches!(insn.flow, Flow::Odd), "{insn:x?}"),
                }
            }
            assert!(
                compared > 1000 && branches > 100,
                "{program}: {compared} instructions, {branches} branches"
            );
        }
    }
}
