//! Programs in small, each cut and replayed: the counter in a register, in memory, in a vector; every form of patch.

use super::harness::{read, write, Live, CODE, DATA, STACK};
use super::rehearse::{plain, record, replay, Interrupt, Recorded, Scene};
use crate::check::{check_registers, What};
use crate::name::Name;
use crate::stub::Source;
use crate::walk::{Action, Reason};
use reprise_code::patchable::Form;
use reprise_code::regs::{Regs, FLAGS, RSP};
use std::arch::global_asm;

/// Defines a program and a function that returns its bytes. Data lies one page after its beginning.
macro_rules! program {
    ($name:ident, $($line:literal),+ $(,)?) => {
        global_asm!(
            ".pushsection .rodata",
            concat!("cut_", stringify!($name), ":"),
            $($line,)+
            "int3",
            concat!("cut_", stringify!($name), "_end:"),
            ".popsection",
        );
        fn $name() -> Vec<u8> {
            let (start, end): (usize, usize);
            // SAFETY: takes two addresses.
            unsafe {
                std::arch::asm!(
                    concat!("lea {}, [rip + cut_", stringify!($name), "]"),
                    concat!("lea {}, [rip + cut_", stringify!($name), "_end]"),
                    out(reg) start, out(reg) end,
                );
                std::slice::from_raw_parts(start as *const u8, end - start).to_vec()
            }
        }
    };
}

program!(
    in_register,
    "2: add rax, rcx",
    "imul rax, rax, 0x343fd",
    "dec rdx",
    "jnz 2b"
);
program!(
    in_memory,
    "2: add dword ptr [rbp - 4], 1",
    "cmp dword ptr [rbp - 4], 20000000",
    "jl 2b"
);
program!(
    in_vector,
    "2: paddq xmm0, xmm1",
    "movdqa xmm2, xmm0",
    "psubq xmm2, xmm3",
    "ptest xmm2, xmm2",
    "jnz 2b",
);
program!(
    rip_relative,
    "2: add qword ptr [rip + cut_rip_relative + 4096], 3",
    "cmp qword ptr [rip + cut_rip_relative + 4096], rdx",
    "jb 2b"
);
program!(
    long_branch,
    "2: dec rdx",
    "mov eax, edx",
    ".byte 0x0f, 0x85",
    ".long 2b - 3f",
    "3:"
);
program!(tiny, "2: dec rdx", "jnz 2b");
program!(
    entered_inside,
    "test rdx, rdx",
    "jmp 3f",
    "2: dec rdx",
    "3: jnz 2b"
);
program!(counted, "mov rcx, rdx", "2: inc eax", "loop 2b");
program!(alone, "2: loop 2b");
program!(
    spinning,
    "2: pause",
    "mov eax, [rbx]",
    "test eax, eax",
    "jz 2b"
);
program!(
    spinning_with_a_vector,
    "2: paddq xmm0, xmm1",
    "mov eax, [rbx]",
    "test eax, eax",
    "jz 2b"
);
program!(
    nested,
    "2: mov ecx, 50",
    "3: lea r8, [rcx + rcx * 2 + 0x12345678]",
    "dec ecx",
    "jnz 3b",
    "add qword ptr [rsp - 16], 1",
    "cmp [rsp - 16], rdx",
    "jne 2b",
);
program!(
    interpreted,
    "2: mov ecx, 5",
    "3: lea r8, [rcx + rcx * 2 + 0x12345678]",
    "dec ecx",
    "jnz 3b",
    "add qword ptr [rbx + 1024], 1",
    "mov r8, [rbx + 1024]",
    "cmp r8, rdx",
    "mov r8d, 0",
    "jne 2b",
);
program!(
    rare,
    ".rept 150",
    "xor eax, 0x12345",
    ".endr",
    "mov rdx, 20000000",
    "2: dec rdx",
    "jnz 2b"
);
program!(calls, "2: mov eax, 39", "syscall", "dec rdx", "jnz 2b");
program!(
    fills,
    "2: mov rdi, rbx",
    "mov ecx, 3000",
    "rep stosb",
    "add eax, 0x1234567",
    "dec rdx",
    "jnz 2b"
);
program!(
    functions,
    "jmp 3f",
    "2: push rdx",
    "pop rax",
    "lea r9, [rax + 1]",
    "ret",
    "3: call 2b",
    "dec rdx",
    "jnz 3b"
);
program!(traps, "2: dec rdx", "nop", "ud2");
program!(
    short_only,
    "2: push rdx",
    "pop rdx",
    "dec rdx",
    "jz 3f",
    "jmp 2b",
    "3:"
);

fn scene(code: Vec<u8>, count: u64, at: u64, skip: u32) -> Scene {
    let mut regs = Regs {
        rip: CODE,
        ..Regs::default()
    };
    for r in 0..16 {
        regs.gpr[r] = 0x1111_1111_1111_1111u64.wrapping_mul(r as u64);
    }
    regs.gpr[2] = count;
    regs.gpr[3] = DATA;
    regs.gpr[5] = STACK + 0x100;
    regs.gpr[RSP] = STACK;
    Scene {
        code,
        regs,
        xmm: [[0; 2]; 16],
        interrupt: Interrupt::Visit(at, skip),
    }
}

/// Records and replays, and compares the state at the cut and the end with what they must be.
fn cut_and_replay(scene: &Scene, form: Option<Form>) -> (Recorded, super::rehearse::Replayed) {
    let mut live = Live::new(&scene.code);
    let recorded = record(&mut live, scene)
        .unwrap_or_else(|action| panic!("no cut: {action:?} at {:x?}", scene.code));
    let replayed = replay(&mut live, scene, &recorded.name, form, || ());
    let (regs, xmm, memory) = replayed.at_match.as_ref().unwrap_or_else(|| {
        panic!(
            "no match: {:#}\n{:?} {}",
            recorded.name,
            replayed.form,
            replayed.last.unwrap()
        );
    });
    let name = &recorded.name;
    assert_eq!(regs.gpr, name.regs.gpr);
    assert_eq!(
        (regs.rip, regs.rflags & FLAGS),
        (name.regs.rip, name.regs.rflags)
    );
    assert_eq!(*xmm, name.xmm);
    assert!(*memory == recorded.memory, "memory at the cut differs");
    let end = plain(&mut live, scene);
    let replayed_end = replayed.end.as_ref().expect("the program came to its end");
    assert_eq!(replayed_end.0.gpr, end.0.gpr);
    assert_eq!(replayed_end.0.rflags & FLAGS, end.0.rflags & FLAGS);
    assert!(replayed_end.1 == end.1, "memory at the end differs");
    assert_eq!(
        read(CODE, scene.code.len()),
        scene.code,
        "something was left in the code"
    );
    if let Some(form) = form {
        assert_eq!(replayed.form, Some(form));
    }
    (recorded, replayed)
}

#[test]
fn counter_in_a_register() {
    for at in [0, 3, 10, 13] {
        let (recorded, replayed) = cut_and_replay(&scene(in_register(), 3_000_000, at, 300), None);
        assert_eq!(recorded.name.form, Form::Long);
        assert_eq!(replayed.false_matches, 0);
    }
}

#[test]
fn counter_in_memory() {
    for at in [0, 4, 11] {
        let (recorded, replayed) = cut_and_replay(&scene(in_memory(), 0, at, 100), None);
        assert!(
            matches!(
                recorded.name.discriminators.iter().next().unwrap().source,
                Source::Half(_)
            ),
            "{}",
            recorded.name
        );
        assert_eq!(replayed.false_matches, 0);
    }
}

#[test]
fn counter_in_a_vector() {
    let mut scene = scene(in_vector(), 0, 4, 200);
    scene.xmm[1] = [1, 2];
    scene.xmm[3] = [3_000_000, 6_000_000];
    scene.xmm[15] = [0xdead_beef_dead_beef; 2];
    let (recorded, replayed) = cut_and_replay(&scene, None);
    assert!(matches!(
        recorded.name.discriminators.iter().next().unwrap().source,
        Source::Vector { .. }
    ));
    assert_eq!(replayed.false_matches, 0);
}

#[test]
fn interrupted_anywhere_after_many_visits() {
    let mut vector = scene(in_vector(), 0, 0, 0);
    vector.xmm[1] = [1, 2];
    vector.xmm[3] = [20_000_000, 40_000_000];
    // Each runs for several times as long as the timer does.
    let scenes = [
        scene(in_register(), 100_000_000, 0, 0),
        scene(in_memory(), 0, 0, 0),
        vector,
        scene(rip_relative(), 60_000_000, 0, 0),
        scene(tiny(), 60_000_000, 0, 0),
        scene(long_branch(), 60_000_000, 0, 0),
        scene(functions(), 20_000_000, 0, 0),
        scene(short_only(), 20_000_000, 0, 0),
        scene(nested(), 1_000_000, 0, 0),
        scene(fills(), 2_000_000, 0, 0),
    ];
    for mut scene in scenes {
        for ms in [1, 4] {
            scene.interrupt = Interrupt::Timer(ms);
            let (recorded, replayed) = cut_and_replay(&scene, None);
            assert!(
                replayed.false_matches <= 5,
                "{} false matches of {}",
                replayed.false_matches,
                recorded.name
            );
        }
    }
}

#[test]
fn instruction_with_a_rip_relative_operand() {
    let (recorded, replayed) =
        cut_and_replay(&scene(rip_relative(), 9_000_000, 0, 500), Some(Form::Long));
    assert_eq!(recorded.name.form, Form::Long);
    assert_eq!(replayed.false_matches, 0);
}

#[test]
fn long_conditional_branch() {
    let (recorded, _) = cut_and_replay(&scene(long_branch(), 3_000_000, 5, 500), Some(Form::Long));
    assert_eq!((recorded.name.regs.rip, recorded.name.len), (CODE + 5, 6));
}

#[test]
fn small_loop_in_every_form() {
    for (form, count) in [
        (Form::Group, 3_000_000),
        (Form::Pun, 3_000_000),
        (Form::Breakpoint, 3_000),
    ] {
        let (recorded, _) = cut_and_replay(&scene(tiny(), count, 3, 500), Some(form));
        assert_eq!(recorded.name.form, Form::Group);
        assert_eq!(recorded.name.regs.rip, CODE);
    }
}

#[test]
fn branch_into_a_patched_group_traps_and_goes_on() {
    let (recorded, replayed) = cut_and_replay(
        &scene(entered_inside(), 1_000_000, 5, 100),
        Some(Form::Group),
    );
    assert_eq!(recorded.name.form, Form::Group);
    assert_eq!(replayed.inner, 1);
}

#[test]
fn loop_instruction() {
    for form in [Form::Pun, Form::Breakpoint] {
        cut_and_replay(&scene(counted(), 5_000, 3, 100), Some(form));
    }
    let (recorded, _) = cut_and_replay(&scene(counted(), 5_000, 3, 100), None);
    assert!(recorded.name.form <= Form::Pun);
}

#[test]
fn loop_instruction_to_itself() {
    let mut scene = scene(alone(), 0, 0, 0);
    scene.regs.gpr[1] = 4_000;
    let (recorded, _) = cut_and_replay(&scene, None);
    assert_eq!(
        recorded.name.discriminators.iter().next().unwrap().source,
        Source::Register(1)
    );
}

#[test]
fn spin_is_found_and_matches_at_once() {
    let scene = scene(spinning(), 0, 2, 50);
    let mut live = Live::new(&scene.code);
    let recorded = record(&mut live, &scene).unwrap_or_else(|a| panic!("{a:?}"));
    assert!(recorded.name.spin && recorded.name.discriminators.is_empty());
    assert!(recorded.traps < 20, "{}", recorded.traps);
    let replayed = replay(&mut live, &scene, &recorded.name, None, || {
        write(DATA, &[1])
    });
    // The first visit of all still has other values in rax.
    assert!(
        replayed.at_match.is_some() && replayed.false_matches <= 1,
        "{replayed:?}"
    );
}

#[test]
fn a_loop_that_counts_in_a_vector_is_no_spin() {
    let mut scene = scene(spinning_with_a_vector(), 0, 4, 50);
    scene.xmm[1] = [1, 0];
    let mut live = Live::new(&scene.code);
    let recorded = record(&mut live, &scene).unwrap_or_else(|a| panic!("{a:?}"));
    assert!(!recorded.name.spin);
    let replayed = replay(&mut live, &scene, &recorded.name, None, || {
        write(DATA, &[1])
    });
    assert_eq!(replayed.at_match.unwrap().1, recorded.name.xmm);
}

#[test]
fn outer_counter_in_memory_is_learnt() {
    let (_, replayed) = cut_and_replay(&scene(nested(), 50_000, 5, 900), None);
    assert!(replayed.false_matches <= 3, "{}", replayed.false_matches);
}

#[test]
fn rounds_that_only_memory_tells_apart() {
    // Five visits in each round; what is stored in between is nowhere near a register.
    let (_, replayed) = cut_and_replay(&scene(interpreted(), 50_000, 5, 4_000), None);
    assert!(replayed.false_matches <= 5, "{}", replayed.false_matches);
}

#[test]
fn place_that_is_not_visited_again() {
    let (recorded, _) = cut_and_replay(&scene(rare(), 0, 25, 0), None);
    assert!(recorded.name.rare);
    assert!(
        recorded.name.regs.rip >= CODE + 150 * 5,
        "{}",
        recorded.name
    );
}

#[test]
fn gates_need_no_cut() {
    for (code, at) in [(calls(), 0), (calls(), 5), (calls(), 7), (traps(), 0)] {
        let scene = scene(code, 1 << 40, at, 0);
        let mut live = Live::new(&scene.code);
        let action = *record(&mut live, &scene).err().expect("no cut");
        assert!(matches!(action, Action::ReachedGate));
    }
}

#[test]
fn over_a_repeated_instruction() {
    for at in [0, 8] {
        let (recorded, _) = cut_and_replay(&scene(fills(), 2_000, at, 20), None);
        assert_eq!(recorded.name.form, Form::Long);
    }
}

#[test]
fn through_calls_and_returns() {
    for at in [2, 8, 9] {
        cut_and_replay(&scene(functions(), 5_000, at, 100), None);
    }
}

#[test]
fn loops_of_short_instructions() {
    for at in [0, 1, 2, 5, 7] {
        cut_and_replay(&scene(short_only(), 20_000, at, 100), None);
    }
}

#[test]
fn an_altered_name_never_matches() {
    let scene = scene(in_register(), 200_000, 3, 300);
    let mut live = Live::new(&scene.code);
    let recorded = record(&mut live, &scene).unwrap_or_else(|a| panic!("{a:?}"));
    let altered = |change: fn(&mut Name)| {
        let mut name = recorded.name.clone();
        change(&mut name);
        name
    };
    type Change = fn(&mut Name);
    let changes: [(Change, What); 4] = [
        (|n| n.regs.rflags ^= 1, What::Flags),
        (|n| n.extended ^= 1, What::Extended),
        (|n| n.window_hash ^= 1, What::Window),
        (
            |n| n.xmm[7][1] ^= 1,
            What::Vector {
                index: 7,
                high: true,
            },
        ),
    ];
    for (change, what) in changes {
        let replayed = replay(&mut live, &scene, &altered(change), None, || ());
        assert!(replayed.at_match.is_none());
        assert_eq!(replayed.last.unwrap().what, what);
    }
    for r in 0..16 {
        let mut name = recorded.name.clone();
        name.regs.gpr[r] ^= 1 << 17;
        let replayed = replay(&mut live, &scene, &name, None, || ());
        assert!(replayed.at_match.is_none());
        assert_eq!(
            replayed.false_matches,
            if r == 0 || r == 2 { 1 } else { 0 },
            "the stub compares register {r}"
        );
    }
    let mut name = recorded.name.clone();
    name.code[1] ^= 1;
    assert_eq!(
        replay(&mut live, &scene, &name, None, || ())
            .last
            .unwrap()
            .what,
        What::Code
    );
}

#[test]
fn differences_read_well() {
    let scene = scene(in_register(), 100_000, 3, 10);
    let mut live = Live::new(&scene.code);
    let recorded = record(&mut live, &scene).unwrap_or_else(|a| panic!("{a:?}"));
    let mut regs = recorded.name.regs;
    regs.gpr[12] = 7;
    let difference = check_registers(&recorded.name, &regs, &super::Nothing).unwrap_err();
    assert_eq!(
        difference.to_string(),
        "r12: recorded 0xcccccccccccccccc, actual 0x7"
    );
}

#[test]
fn a_walk_that_strays_gives_up() {
    use crate::walk::Walk;
    let live = Live::new(&tiny());
    let regs = Regs {
        rip: CODE,
        ..Regs::default()
    };
    struct Code;
    impl reprise_code::memory::Memory for Code {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            buf.copy_from_slice(&read(addr, buf.len()));
            true
        }
    }
    impl crate::machine::Machine for Code {
        fn xmm(&self) -> crate::machine::Xmm {
            [[0; 2]; 16]
        }
        fn extended(&self) -> u64 {
            0
        }
    }
    let (mut walk, action) = Walk::begin(&regs, &Code);
    assert!(matches!(action, Action::PlantInt3(pc) if pc == CODE + 3));
    assert!(matches!(
        walk.on_trap(&regs, &Code),
        Action::GiveUp(Reason::Strayed)
    ));
    assert!(matches!(
        walk.on_timeout(&regs, &Code),
        Action::GiveUp(Reason::Strayed)
    ));
    let ours = Regs {
        rip: reprise_abi::layout::RESERVATION,
        ..regs
    };
    assert!(matches!(Walk::begin(&ours, &Code).1, Action::ReachedGate));
    drop(live);
}
