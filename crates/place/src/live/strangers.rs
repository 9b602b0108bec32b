//! Walks through real programs, from wherever they happen to be.

use super::Child;
use crate::walk::{Action, Walk};
use reprise_code::decode::{Flow, Insn};
use reprise_code::patchable::Form;

/// Steps after which a run for the next visit counts as timed out.
const TIMEOUT_STEPS: u32 = 300;

/// Steps the child until it is at `pc`; None when it ended, false when that took too long.
fn run_to(child: &mut Child, pc: u64, most: u32) -> Option<bool> {
    for _ in 0..most {
        if !child.step() {
            return None;
        }
        let rip = child.regs()?.rip;
        if rip == pc {
            return Some(true);
        }
        // A REP instruction stops in every round.
        if Insn::at(rip, child).is_some_and(|i| i.flow == Flow::Repeat) {
            continue;
        }
    }
    Some(false)
}

#[derive(Default, Debug)]
struct Outcome {
    long: u32,
    short: u32,
    breakpoint: u32,
    rare: u32,
    spin: u32,
    gate: u32,
    gave_up: u32,
    steps: u32,
}

fn walks(program: &str, args: &[&str], skip: u32, count: u32) -> Outcome {
    let mut child = Child::spawn(program, args);
    let mut out = Outcome::default();
    for _ in 0..skip {
        child.step();
    }
    for n in 0..count {
        for _ in 0..20 + n % 17 * 7 {
            if !child.step() {
                return out;
            }
        }
        let Some(regs) = child.regs() else { return out };
        let (mut walk, mut action) = Walk::begin(&regs, &child);
        loop {
            let (pc, most) = match action {
                // Within a REP instruction it may take a while.
                Action::PlantInt3(pc) => (pc, 1_000_000),
                Action::RunUntilTrapOrTimeout(pc) => (pc, TIMEOUT_STEPS),
                Action::ReachedGate => {
                    out.gate += 1;
                    break;
                }
                Action::GiveUp(_) => {
                    out.gave_up += 1;
                    break;
                }
                Action::Done(plan) => {
                    match plan.form {
                        Form::Long => out.long += 1,
                        Form::Group | Form::Pun => out.short += 1,
                        Form::Breakpoint => out.breakpoint += 1,
                    }
                    out.rare += plan.rare as u32;
                    out.spin += plan.spin as u32;
                    break;
                }
            };
            out.steps += 1;
            let Some(trapped) = run_to(&mut child, pc, most) else {
                return out;
            };
            let Some(regs) = child.regs() else { return out };
            action = if trapped {
                walk.on_trap(&regs, &child)
            } else {
                walk.on_timeout(&regs, &child)
            };
        }
    }
    out
}

#[test]
fn walks_through_real_programs_end_at_places() {
    for (program, args) in [
        (
            "/bin/sh",
            &["-c", "x=1; while [ $x -lt 900 ]; do x=$((x+1)); done"][..],
        ),
        ("/usr/bin/sha256sum", &["/bin/sh"]),
        ("/usr/bin/sort", &["/etc/services", "/etc/passwd"]),
        ("/bin/gzip", &["-c", "/bin/sh"]),
    ] {
        let out = walks(program, args, 15_000, 25);
        let done = out.long + out.short + out.breakpoint;
        assert!(done + out.gate >= 10, "{program}: {out:?}");
        assert_eq!(out.gave_up, 0, "{program}: {out:?}");
        assert!(out.long * 10 >= done * 8, "{program}: {out:?}");
    }
}
