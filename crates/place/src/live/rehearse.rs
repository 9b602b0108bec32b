//! Records a cut of a program in memory, and replays it by a patch.

use super::harness::{arm_timer, read, write, Frame, Live, CELL};
use crate::check::{check, check_code, Difference, Tests};
use crate::machine::Xmm;
use crate::name::{Name, MAX_NAME};
use crate::step::{next, Next};
use crate::stub::{Cell, Spot, Stub, MAX_STUB};
use crate::trace::Trace;
use crate::walk::{Action, Walk};
use reprise_abi::layout::USER_END;
use reprise_code::decode::Insn;
use reprise_code::patchable::{classify, Form, Place, INT3};
use reprise_code::regs::{Regs, RCX};

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ *b as u64).wrapping_mul(0x100_0000_01b3)
    })
}

/// When a program is interrupted.
#[derive(Clone, Copy)]
pub enum Interrupt {
    /// At the instruction at this offset, after so many visits of it.
    Visit(u64, u32),
    /// Wherever it is after so many milliseconds.
    Timer(i64),
}

/// A program and where it is interrupted.
pub struct Scene {
    /// Its code; it ends at its last byte, an `int3`.
    pub code: Vec<u8>,
    /// Registers at its beginning.
    pub regs: Regs,
    /// Vector registers at its beginning.
    pub xmm: Xmm,
    /// When it is interrupted.
    pub interrupt: Interrupt,
}

/// A recorded cut.
pub struct Recorded {
    /// Its name.
    pub name: Name,
    /// All data and stack then.
    pub memory: Vec<u8>,
    /// Traps that the walk took.
    pub traps: u32,
}

/// A replayed cut.
#[derive(Debug)]
pub struct Replayed {
    /// How the place was patched.
    pub form: Option<Form>,
    /// State at the match.
    pub at_match: Option<(Regs, Xmm, Vec<u8>)>,
    /// Matches of the stub that were none.
    pub false_matches: u32,
    /// Traps at inner boundaries of a group.
    pub inner: u32,
    /// Registers and memory at the end of the program; None when it never ran.
    pub end: Option<(Regs, Vec<u8>)>,
    /// The last difference the checker saw.
    pub last: Option<Difference>,
}

/// A breakpoint that is planted.
struct Breakpoint(u64, u8);

impl Breakpoint {
    fn plant(at: u64) -> Breakpoint {
        let old = read(at, 1)[0];
        write(at, &[INT3]);
        Breakpoint(at, old)
    }

    fn remove(self) -> u64 {
        write(self.0, &[self.1]);
        self.0
    }
}

/// Runs the scene to its cut; or the walk's last word where there is none.
pub fn record(live: &mut Live, scene: &Scene) -> Result<Recorded, Box<Action>> {
    live.clear();
    let start = scene.regs;
    let (spot, mut skip, mut timer) = match scene.interrupt {
        Interrupt::Visit(at, skip) => (start.rip + at, skip, None),
        // The first trap, before anything ran, only starts the timer.
        Interrupt::Timer(ms) => (start.rip, 0, Some(ms)),
    };
    let mut breakpoint = Some(Breakpoint::plant(spot));
    let mut walk: Option<Walk> = None;
    let mut traps = 0;
    let mut result = None;
    let mut timed = false;
    live.run(&start, &scene.xmm, &mut |frame: &mut Frame| {
        if frame.signal == libc::SIGALRM && !std::mem::take(&mut timed) {
            return;
        }
        let mut regs = frame.regs();
        let hit = breakpoint.take().map(Breakpoint::remove);
        let machine = frame.machine(None);
        let action = if frame.signal == libc::SIGTRAP {
            traps += 1;
            if std::mem::take(&mut timed) {
                arm_timer(0);
            }
            if hit != Some(regs.rip - 1) {
                // The end of the program.
                frame.finish();
                return;
            }
            regs.rip -= 1;
            frame.set(&regs);
            if let Some(ms) = timer.take() {
                timed = true;
                arm_timer(ms);
                return;
            }
            match &mut walk {
                Some(walk) => walk.on_trap(&regs, &machine),
                None if regs.rip == spot && skip == 0 => {
                    traps = 0;
                    let (mut begun, action) = Walk::begin(&regs, &machine);
                    begun.look_closely();
                    walk = Some(begun);
                    action
                }
                None => {
                    // Over the instruction, and back to the breakpoint.
                    let to = if regs.rip == spot {
                        skip -= 1;
                        match next(&Insn::at(regs.rip, &machine).unwrap(), &regs, &machine) {
                            Next::At(pc) => pc,
                            _ => spot,
                        }
                    } else {
                        spot
                    };
                    breakpoint = Some(Breakpoint::plant(to));
                    return;
                }
            }
        } else {
            match &mut walk {
                Some(walk) => walk.on_timeout(&regs, &machine),
                None => {
                    let (mut begun, action) = Walk::begin(&regs, &machine);
                    begun.look_closely();
                    walk = Some(begun);
                    action
                }
            }
        };
        match action {
            Action::PlantInt3(pc) => breakpoint = Some(Breakpoint::plant(pc)),
            Action::RunUntilTrapOrTimeout(pc) => {
                breakpoint = Some(Breakpoint::plant(pc));
                timed = true;
                arm_timer(1);
            }
            Action::Done(plan) => {
                result = Some(Ok(Name::of(&plan, &machine, hash)));
                frame.finish();
            }
            other => {
                result = Some(Err(other));
                frame.finish();
            }
        }
    });
    let memory = live.memory();
    match result.expect("the interrupt came before the program's end") {
        Ok(mut name) => {
            name.memory_hash = hash(&memory);
            // Through bytes, as in a trace.
            let mut bytes = [0; MAX_NAME];
            let len = name.to_bytes(&mut bytes).unwrap();
            let name = Name::parse(&bytes[..len]).unwrap();
            Ok(Recorded {
                name,
                memory,
                traps,
            })
        }
        Err(action) => Err(Box::new(action)),
    }
}

/// Maps memory for the place's stub.
fn stub_for(live: &mut Live, place: &Place) -> Option<u64> {
    // Above the code if possible, else below.
    for (low, high) in [
        (place.pc + 0x10_0000, USER_END),
        (0x10_0000, place.pc - 0x10_0000),
    ] {
        let mut low = low;
        for _ in 0..16 {
            let Some(at) = place.first_fit(low, high, MAX_STUB as u64) else {
                break;
            };
            if live.map_stub(at) {
                return Some(at);
            }
            low = at + 0x1_0000;
        }
    }
    None
}

/// Runs the scene again with a patch for the name, of this form or the best, to its end. `meanwhile` runs at the match.
pub fn replay(
    live: &mut Live,
    scene: &Scene,
    name: &Name,
    form: Option<Form>,
    meanwhile: fn(),
) -> Replayed {
    live.clear();
    let end = scene.regs.rip + scene.code.len() as u64 - 1;
    let (mut planted, mut replayed) = (None, None);
    let mut tests = Tests::of(name);
    let mut finale = None;
    // Planted from the handler of a first breakpoint, with the machine at hand, as in a real replay.
    let mut first = Some(Breakpoint::plant(scene.regs.rip));
    let mut out = (0, 0, None, None);
    let mut memory_at_match = Vec::new();
    let live_ptr: *mut Live = live;
    let fs = name.regs;
    let mut used = None;
    live.run(&scene.regs, &scene.xmm, &mut |frame: &mut Frame| {
        if frame.signal == libc::SIGALRM {
            return;
        }
        // SAFETY: `run` doesn't touch it while the closure runs.
        let live = unsafe { &mut *live_ptr };
        let mut regs = frame.regs();
        if let Some(breakpoint) = first.take() {
            regs.rip = breakpoint.remove();
            frame.set(&regs);
            let machine = frame.machine(None);
            if let Err(difference) = check_code(name, &machine) {
                out.2 = Some(difference);
                frame.finish();
                return;
            }
            let places = classify(name.regs.rip, &machine);
            let found = places
                .iter()
                .filter(|p| form.is_none_or(|f| f == p.form))
                .find_map(|p| stub_for(live, p).map(|at| (*p, at)));
            let Some((place, at)) = found else {
                frame.finish();
                return;
            };
            // With a form of the caller's choice only the place itself is copied.
            let trace = match form {
                None => Trace::around(&place, &machine, |_| true),
                Some(_) => None,
            };
            let stub =
                Stub::best(at, Cell::At(CELL), &place, tests.list(), &trace, &name.regs).unwrap();
            write(at, stub.code());
            let original: [u8; 5] = read(place.pc, 5).try_into().unwrap();
            write(place.pc, &place.patch(at)[..place.patch_len()]);
            used = Some(place.form);
            planted = Some((place, stub, original, trace));
            return;
        }
        let Some((place, stub, original, trace)) = &planted else {
            finale = Some((regs, live.memory()));
            frame.finish();
            return;
        };
        if frame.signal == libc::SIGSEGV {
            out.3 = Some("fault");
            frame.finish();
            return;
        }
        let trap = regs.rip - 1;
        if trap == end {
            finale = Some((regs, live.memory()));
            write(place.pc, &original[..place.patch_len()]);
            frame.finish();
            return;
        }
        let at_stub = stub.locate(trap) == Some(Spot::Trap);
        let at_breakpoint = place.form == Form::Breakpoint && trap == place.pc;
        if !at_stub && !at_breakpoint {
            match stub.copy_of(trap) {
                Some(copy) => {
                    out.1 += 1;
                    write(CELL, &regs.gpr[RCX].to_le_bytes());
                    frame.go(copy);
                }
                None => {
                    out.3 = Some("stray trap");
                    frame.finish();
                }
            }
            return;
        }
        regs.rip = place.pc;
        let machine = frame.machine(Some((place.pc, *original)));
        let named = Regs {
            fs_base: fs.fs_base,
            gs_base: fs.gs_base,
            ..regs
        };
        match check(name, &named, &machine, hash) {
            Ok(()) => {
                memory_at_match = live.memory();
                replayed = Some((regs, frame.xmm()));
                write(place.pc, &original[..place.patch_len()]);
                planted = None;
                frame.go(regs.rip);
                meanwhile();
            }
            Err(difference) => {
                out.0 += 1;
                out.2 = Some(difference);
                if tests.learn(name, &machine) {
                    let at = stub.start();
                    let better =
                        Stub::best(at, Cell::At(CELL), place, tests.list(), trace, &name.regs)
                            .unwrap();
                    write(better.start(), better.code());
                    planted = Some((*place, better, *original, *trace));
                }
                let (_, stub, ..) = planted.as_ref().unwrap();
                frame.go(stub.resume());
            }
        }
    });
    let (false_matches, inner, last, error) = out;
    assert_eq!(error, None);
    Replayed {
        form: used,
        at_match: replayed.map(|(regs, xmm)| (regs, xmm, memory_at_match)),
        false_matches,
        inner,
        end: finale,
        last,
    }
}

/// Runs the scene without any patch.
pub fn plain(live: &mut Live, scene: &Scene) -> (Regs, Vec<u8>) {
    live.clear();
    let mut end = None;
    live.run(&scene.regs, &scene.xmm, &mut |frame| {
        if frame.signal != libc::SIGALRM {
            end = Some(frame.regs());
            frame.finish();
        }
    });
    (end.unwrap(), live.memory())
}
