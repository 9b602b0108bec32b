//! Whatever a stub compares, it changes nothing.

use super::harness::{read, write, Frame, Live, CELL, CODE, DATA};
use crate::machine::Xmm;
use crate::stub::{Cell, Discriminator, Source, Spot, Stub, MAX_STUB};
use proptest::prelude::*;
use reprise_code::patchable::classify;
use reprise_code::regs::{Regs, FLAGS};

/// `nop dword ptr [rax+rax]` of five bytes, then the end.
const PLACE: [u8; 6] = [0x0f, 0x1f, 0x44, 0x00, 0x00, 0xcc];
/// Flags that a handler can run with and `sigreturn` sets: not AC, NT, ID.
const RANDOM_FLAGS: u64 = FLAGS & !(1 << 18 | 1 << 14 | 1 << 21);
/// An address where there is nothing.
const NOWHERE: u64 = CODE + 0x4000_0000;

#[derive(Clone, Debug)]
struct Case {
    regs: Regs,
    xmm: Xmm,
    data: [u64; 32],
    tests: Vec<(Discriminator, bool)>,
}

fn case() -> impl Strategy<Value = Case> {
    let value = prop_oneof![
        any::<u64>(),
        any::<i32>().prop_map(|n| n as i64 as u64),
        0u64..3,
        Just(1 << 31),
        Just(i64::MIN as u64)
    ];
    let test = (
        0u8..7,
        0u8..16,
        0u64..31,
        any::<bool>(),
        prop_oneof![9 => Just(0u64), 1 => any::<u64>(), 1 => Just(1 << 32)],
    );
    (
        proptest::collection::vec(value.clone(), 16),
        any::<u64>(),
        any::<[[u64; 2]; 16]>(),
        proptest::collection::vec(value, 32),
        proptest::collection::vec(test, 0..8),
    )
        .prop_map(|(gpr, flags, xmm, data, wanted)| {
            let mut gpr: [u64; 16] = gpr.try_into().unwrap();
            let data: [u64; 32] = data.try_into().unwrap();
            // Bases of memory tests point to data.
            for &(kind, r, at, ..) in &wanted {
                if kind == 4 || kind == 5 {
                    gpr[r as usize] = DATA + 4 * at;
                }
            }
            let regs = Regs {
                gpr,
                rip: CODE,
                rflags: flags & RANDOM_FLAGS | 2,
                ..Regs::default()
            };
            let bytes: Vec<u8> = data.iter().flat_map(|w| w.to_le_bytes()).collect();
            let at = |offset: u64, len: usize| {
                let mut word = [0; 8];
                word[..len].copy_from_slice(&bytes[offset as usize..][..len]);
                u64::from_le_bytes(word)
            };
            let tests = wanted.iter().map(|&(kind, r, offset, high, error)| {
                let (source, value) = match kind {
                    0 => (Source::Register(r), gpr[r as usize]),
                    1 => (
                        Source::Vector { index: r, high },
                        xmm[r as usize][high as usize],
                    ),
                    2 => (Source::Word(DATA + 4 * offset), at(4 * offset, 8)),
                    3 => (Source::Half(DATA + 4 * offset), at(4 * offset, 4)),
                    4 | 5 => {
                        // What the register points to in the end: later tests may have moved it.
                        let disp = (4 * offset) as i32 - (gpr[r as usize] - DATA) as i32;
                        if kind == 4 {
                            (Source::WordAt(r, disp), at(4 * offset, 8))
                        } else {
                            (Source::HalfAt(r, disp), at(4 * offset, 4))
                        }
                    }
                    _ => {
                        return (
                            Discriminator {
                                source: Source::Word(NOWHERE),
                                value: 0,
                            },
                            false,
                        )
                    }
                };
                let half = matches!(source, Source::Half(_) | Source::HalfAt(..));
                let error = if half { error & u32::MAX as u64 } else { error };
                (
                    Discriminator {
                        source,
                        value: value ^ error,
                    },
                    error == 0,
                )
            });
            Case {
                regs,
                xmm,
                data,
                tests: tests.collect(),
            }
        })
}

/// Runs one visit of the place; how often the stub trapped, and the state at the end.
fn visit(live: &mut Live, case: &Case) -> (u32, bool, Regs, Xmm) {
    live.clear();
    let bytes: Vec<u8> = case.data.iter().flat_map(|w| w.to_le_bytes()).collect();
    write(DATA, &bytes);
    let tests: Vec<_> = case.tests.iter().map(|t| t.0).collect();
    let (mut traps, mut faults, mut changed) = (0, 0, false);
    let mut stub: Option<Stub> = None;
    let mut end = None;
    let wanted = case.regs;
    let at = CODE + 0x8_0000;
    live.run(&wanted, &case.xmm, &mut |frame: &mut Frame| {
        let mut regs = frame.regs();
        let Some(planted) = &stub else {
            // The code is a breakpoint at first.
            write(CODE, &PLACE);
            let place = *classify(CODE, &frame.machine(None)).best().unwrap();
            let built = Stub::build(at, Cell::At(CELL), &place, &tests).unwrap();
            write(at, built.code());
            write(CODE, &place.patch(at));
            stub = Some(built);
            frame.go(CODE);
            return;
        };
        match planted.locate(regs.rip - (frame.signal == libc::SIGTRAP) as u64) {
            Some(Spot::Trap) => {
                traps += 1;
                let at_trap = Regs { rip: CODE, ..regs };
                changed |=
                    at_trap.gpr != wanted.gpr || (at_trap.rflags ^ wanted.rflags) & FLAGS != 0;
                frame.go(planted.resume());
            }
            Some(Spot::Test) if frame.signal == libc::SIGSEGV => {
                faults += 1;
                regs.gpr[1] = u64::from_le_bytes(read(CELL, 8).try_into().unwrap());
                regs.rip = planted.resume();
                frame.set(&regs);
            }
            _ => {
                end = Some((regs, frame.xmm()));
                frame.finish();
            }
        }
    });
    let (regs, xmm) = end.unwrap();
    assert!(faults <= 1 && !changed);
    (traps, faults == 1, regs, xmm)
}

#[test]
fn stubs_change_nothing_and_trap_exactly_when_all_tests_pass() {
    let mut live = Live::new(&[0xcc]);
    assert!(live.map_stub(CODE + 0x8_0000));
    const { assert!(MAX_STUB <= 0x2000) };
    let live = std::cell::RefCell::new(live);
    let config = ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let seen = std::cell::Cell::new((0, 0, 0));
    let result = runner.run(&case(), |case| {
        let mut live = live.borrow_mut();
        write(CODE, &[0xcc]);
        let (traps, fault, regs, xmm) = visit(&mut live, &case);
        let all = case.tests.iter().all(|t| t.1);
        prop_assert_eq!(traps, all as u32);
        let (matches, misses, faults) = seen.get();
        seen.set((matches + traps, misses + !all as u32, faults + fault as u32));
        prop_assert_eq!(regs.rip, CODE + 6);
        prop_assert_eq!(regs.gpr, case.regs.gpr);
        prop_assert_eq!(regs.rflags & FLAGS, case.regs.rflags & FLAGS);
        prop_assert_eq!(xmm, case.xmm);
        Ok(())
    });
    result.unwrap();
    let (matches, misses, faults) = seen.get();
    assert!(
        matches > 200 && misses > 500 && faults > 50,
        "{matches} matches, {misses} misses, {faults} faults"
    );
}
