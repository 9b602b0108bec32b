//! An agent expression, translated into machine code of a stub. How many words are on its stack is known at each operation, so each word has
//! its place in the stub's data page. What the code does not decide, as a division by zero, counts as true: the debugger then looks itself.

use crate::expression::{Binary, Expression, Operation};
use crate::machine_code::{Code, IF_NOT_ZERO, IF_ZERO, RAX, RCX, RDX, STACK, VALUE};
use std::collections::BTreeMap;

/// Most bytes of an expression that is translated: longer ones don't fit into a stub.
const MOST: usize = 256;
/// Numbers of the registers as gdb has them, in those of instructions.
pub(crate) const NUMBERS: [u8; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// gdb's number of the instruction pointer.
const RIP: u16 = 16;

/// Jumps forward, by the offset that they lead to: how many words are on the stack there, and where the jumps' distances are.
type Pending = BTreeMap<usize, (u64, Vec<usize>)>;

/// What is done with the value of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The code falls through when it is zero.
    Test,
    /// The code leaves it in the word [`VALUE`], and falls through.
    Keep,
}

/// Puts code for `e`, of a breakpoint at `pc`, that falls through as `wanted` says; the jumps of the other case, and of what is not decided, whose
/// distances are missing. rax, rcx, rdx and flags are free to use. `None`: it can't be translated.
pub(crate) fn translate(c: &mut Code, e: &Expression, pc: u64, wanted: Use) -> Option<Vec<usize>> {
    if e.bytes().len() > MOST {
        return None;
    }
    let (mut hits, mut misses, mut pending) = (Vec::new(), Vec::new(), Pending::new());
    let (mut at, mut depth) = (0, Some(0u64));
    while at < e.bytes().len() {
        if let Some((there, jumps)) = pending.remove(&at) {
            if depth.is_some_and(|d| d != there) {
                return None;
            }
            c.land(&jumps);
            depth = Some(there);
        }
        // Nothing leads here: gdb doesn't write such code.
        let words = depth?;
        let (operation, next) = e.operation(at)?;
        let word = |below: u64| Some(STACK + 8 * words.checked_sub(1 + below)?);
        depth = match operation {
            Operation::End => {
                c.load(0, word(0)?);
                match wanted {
                    Use::Test => {
                        c.put(&[0x48, 0x85, 0xc0]);
                        hits.push(c.branch(IF_NOT_ZERO));
                    }
                    Use::Keep => c.store(0, VALUE),
                }
                misses.push(c.jump());
                None
            }
            Operation::Goto(to) => {
                let jump = c.jump();
                wait(&mut pending, at, to, words, jump)?;
                None
            }
            Operation::IfGoto(to) => {
                c.load(0, word(0)?);
                c.put(&[0x48, 0x85, 0xc0]);
                let jump = c.branch(IF_NOT_ZERO);
                wait(&mut pending, at, to, words - 1, jump)?;
                Some(words - 1)
            }
            Operation::Pop => Some(words.checked_sub(1)?),
            Operation::Swap => {
                move_words(c, &[(word(0)?, word(1)?), (word(1)?, word(0)?)]);
                Some(words)
            }
            Operation::Rotate => {
                let [a, b, top] = [word(2)?, word(1)?, word(0)?];
                move_words(c, &[(top, a), (a, b), (b, top)]);
                Some(words)
            }
            Operation::Pick(below) => {
                c.load(0, word(below.into())?);
                c.store(0, STACK + 8 * words);
                Some(words + 1)
            }
            Operation::Constant(value) => {
                c.constant(0, value);
                c.store(0, STACK + 8 * words);
                Some(words + 1)
            }
            Operation::Register(number) => {
                push_register(c, number, pc, STACK + 8 * words)?;
                Some(words + 1)
            }
            Operation::Binary(how) => {
                c.load(1, word(0)?);
                c.load(0, word(1)?);
                binary(c, how, &mut hits);
                c.store(0, word(1)?);
                Some(words - 1)
            }
            Operation::LogNot
            | Operation::BitNot
            | Operation::Extend(_)
            | Operation::ZeroExtend(_)
            | Operation::Read(_) => {
                c.load(0, word(0)?);
                unary(c, operation)?;
                c.store(0, word(0)?);
                Some(words)
            }
        };
        at = next;
    }
    // It ends with its last operation, and nothing leads behind that.
    if depth.is_some() || !pending.is_empty() {
        return None;
    }
    c.land(&misses);
    Some(hits)
}

/// A jump from `at` to an operation that is still to come.
fn wait(pending: &mut Pending, at: usize, to: usize, words: u64, jump: usize) -> Option<()> {
    if to <= at {
        return None;
    }
    let (there, jumps) = pending.entry(to).or_insert((words, Vec::new()));
    jumps.push(jump);
    (*there == words).then_some(())
}

/// From one word to another, all at once; three at most.
fn move_words(c: &mut Code, moves: &[(u64, u64)]) {
    for (register, (from, _)) in (0..3).zip(moves) {
        c.load(register, *from);
    }
    for (register, (_, to)) in (0..3).zip(moves) {
        c.store(register, *to);
    }
}

fn push_register(c: &mut Code, number: u16, pc: u64, word: u64) -> Option<()> {
    let saved = match number {
        RIP => {
            c.constant(0, pc);
            c.store(0, word);
            return Some(());
        }
        _ => match *NUMBERS.get(usize::from(number))? {
            0 => RAX,
            1 => RCX,
            2 => RDX,
            other => {
                c.store(other, word);
                return Some(());
            }
        },
    };
    c.load(0, saved);
    c.store(0, word);
    Some(())
}

/// rax becomes rax and rcx.
fn binary(c: &mut Code, how: Binary, hits: &mut Vec<usize>) {
    /// cmp rax, rcx; then a byte that says how it was, in all of rax.
    fn comparison(c: &mut Code, set: u8) {
        c.put(&[0x48, 0x39, 0xc8, 0x0f, set, 0xc0, 0x0f, 0xb6, 0xc0]);
    }
    match how {
        Binary::Add => c.put(&[0x48, 0x01, 0xc8]),
        Binary::Sub => c.put(&[0x48, 0x29, 0xc8]),
        Binary::Mul => c.put(&[0x48, 0x0f, 0xaf, 0xc1]),
        Binary::And => c.put(&[0x48, 0x21, 0xc8]),
        Binary::Or => c.put(&[0x48, 0x09, 0xc8]),
        Binary::Xor => c.put(&[0x48, 0x31, 0xc8]),
        Binary::ShiftLeft => c.put(&[0x48, 0xd3, 0xe0]),
        Binary::ShiftRightSigned => c.put(&[0x48, 0xd3, 0xf8]),
        Binary::ShiftRightUnsigned => c.put(&[0x48, 0xd3, 0xe8]),
        Binary::Equal => comparison(c, 0x94),
        Binary::LessSigned => comparison(c, 0x9c),
        Binary::LessUnsigned => comparison(c, 0x92),
        Binary::DivSigned | Binary::RemSigned | Binary::DivUnsigned | Binary::RemUnsigned => {
            // test rcx, rcx
            c.put(&[0x48, 0x85, 0xc9]);
            hits.push(c.branch(IF_ZERO));
            if matches!(how, Binary::DivSigned | Binary::RemSigned) {
                // The lowest number by -1 would trap: cmp rcx, -1; then cqo; idiv rcx
                c.put(&[0x48, 0x83, 0xf9, 0xff]);
                hits.push(c.branch(IF_ZERO));
                c.put(&[0x48, 0x99, 0x48, 0xf7, 0xf9]);
            } else {
                // xor edx, edx; div rcx
                c.put(&[0x31, 0xd2, 0x48, 0xf7, 0xf1]);
            }
            if matches!(how, Binary::RemSigned | Binary::RemUnsigned) {
                c.put(&[0x48, 0x89, 0xd0]);
            }
        }
    }
}

/// rax becomes something else.
fn unary(c: &mut Code, operation: Operation) -> Option<()> {
    match operation {
        // test rax, rax; sete al; movzx eax, al
        Operation::LogNot => c.put(&[0x48, 0x85, 0xc0, 0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0]),
        Operation::BitNot => c.put(&[0x48, 0xf7, 0xd0]),
        Operation::Read(1) => c.put(&[0x0f, 0xb6, 0x00]),
        Operation::Read(2) => c.put(&[0x0f, 0xb7, 0x00]),
        Operation::Read(4) => c.put(&[0x8b, 0x00]),
        Operation::Read(8) => c.put(&[0x48, 0x8b, 0x00]),
        Operation::Extend(bits @ 1..) | Operation::ZeroExtend(bits @ 1..) => {
            let above = 64u32.checked_sub(bits).filter(|n| *n > 0);
            if let Some(above) = above {
                // shl rax, above; sar or shr rax, above
                let back = match operation {
                    Operation::Extend(_) => 0xf8,
                    _ => 0xe8,
                };
                let n = above as u8;
                c.put(&[0x48, 0xc1, 0xe0, n, 0x48, 0xc1, back, n]);
            }
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{registers, WORTH};
    use crate::machine_code::{saved_flags, FLAGS};
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use reprise_abi::layout::PAGE;

    /// Runs a translated expression here: is it true?
    fn runs(e: &Expression, rax: u64, rdi: u64) -> Option<bool> {
        runs_for(e, rax, rdi, Use::Test).map(|(truth, _)| truth)
    }

    /// Runs a translated expression here: is it true, or not decided? And the value that it left.
    fn runs_for(e: &Expression, rax: u64, rdi: u64, wanted: Use) -> Option<(bool, u64)> {
        let len = 3 * PAGE as usize;
        // SAFETY: new memory.
        let base = unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), len, all, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let mut c = Code {
            bytes: Vec::new(),
            base: base as u64,
            data: base as u64 + 2 * PAGE,
        };
        // It gets rdi and, as its second argument, rax. All registers that it changes belong to the callee.
        c.put(&[0x48, 0x89, 0xf0]);
        c.save();
        let hits = translate(&mut c, e, 0x1000, wanted)?;
        c.restore();
        // xor eax, eax; ret; and for a hit mov eax, 1; ret
        c.put(&[0x31, 0xc0, 0xc3]);
        c.land(&hits);
        c.restore();
        c.put(&[0xb8, 1, 0, 0, 0, 0xc3]);
        // SAFETY: the code is as long as there is room, and keeps to the calling convention.
        let value = unsafe {
            assert!(c.bytes.len() < 2 * PAGE as usize);
            std::ptr::copy_nonoverlapping(c.bytes.as_ptr(), base.cast(), c.bytes.len());
            let f: extern "sysv64" fn(u64, u64) -> u32 = std::mem::transmute(base);
            let value = f(rdi, rax);
            let kept = *base.cast::<u64>().add((2 * PAGE + VALUE) as usize / 8);
            let stored = *base.cast::<u64>().add((2 * PAGE + FLAGS) as usize / 8);
            assert!(saved_flags(stored, 0) & !0x8d5 == 0);
            libc::munmap(base, len);
            (value == 1, kept)
        };
        Some(value)
    }

    #[test]
    fn translations_decide_as_expressions_do() {
        let g = registers();
        let mut translated = 0;
        for (bytes, worth) in WORTH {
            // Memory at a fixed address is not there.
            if bytes.contains(&0x18) {
                continue;
            }
            let e = Expression::new(bytes.to_vec()).expect("short");
            let Some(truth) = runs(&e, g.r[0], g.r[5]) else {
                assert_eq!(worth, None, "{bytes:x?}");
                continue;
            };
            // What has no value counts as true.
            assert_eq!(truth, worth != Some(0), "{bytes:x?}");
            translated += 1;
        }
        assert!(translated > 11, "{translated}");
    }

    /// An expression of so many operations that read no memory; jumps lead forward.
    fn some_expression() -> impl Strategy<Value = Vec<u8>> {
        let plain = prop::sample::select(vec![
            0x02u8, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x0f, 0x10, 0x11,
            0x12, 0x13, 0x14, 0x15, 0x28, 0x29, 0x2b, 0x33,
        ]);
        let bits = prop_oneof![Just(8u8), Just(16), Just(32), Just(64), 0..=66u8];
        let operation = prop_oneof![
            4 => plain.prop_map(|o| vec![o]),
            4 => any::<u8>().prop_map(|n| vec![0x22, n]),
            2 => any::<[u8; 8]>().prop_map(|n| [&[0x25][..], &n].concat()),
            2 => prop_oneof![Just(0u8), Just(5)].prop_map(|r| vec![0x26, 0, r]),
            2 => (prop_oneof![Just(0x16u8), Just(0x2a)], bits).prop_map(|(o, n)| vec![o, n]),
            1 => (0..4u8).prop_map(|n| vec![0x32, n]),
            1 => (prop_oneof![Just(0x20u8), Just(0x21)], 0..12u8).prop_map(|(o, n)| vec![o, 0, n]),
        ];
        prop::collection::vec(operation, 1..20).prop_map(|mut all| {
            // Something to begin with, and an end.
            all.splice(0..0, [vec![0x22, 1], vec![0x22, 200], vec![0x26, 0, 0]]);
            all.push(vec![0x27]);
            let mut bytes = Vec::new();
            for mut one in all {
                if matches!(one[0], 0x20 | 0x21) {
                    one[2] = one[2].saturating_add(bytes.len() as u8);
                }
                bytes.extend(one);
            }
            bytes
        })
    }

    #[test]
    fn any_translation_decides_as_its_expression_does() {
        const CASES: usize = 20_000;
        let mut runner = TestRunner::deterministic();
        let any = (some_expression(), any::<[u64; 2]>());
        let (mut translated, mut valued) = (0, 0);
        for _ in 0..CASES {
            let (bytes, [rax, rdi]) = any.new_tree(&mut runner).expect("one").current();
            let e = Expression::new(bytes).expect("short");
            let mut g = registers();
            (g.r[0], g.r[5]) = (rax, rdi);
            if let Some(truth) = runs(&e, rax, rdi) {
                let value = e.value(&g, |_, _| false);
                // What has no value counts as true.
                let wanted = value != Some(0);
                assert_eq!(truth, wanted, "{:x?} {rax:#x} {rdi:#x}", e.bytes());
                let (undecided, kept) = runs_for(&e, rax, rdi, Use::Keep).expect("as before");
                assert!(
                    undecided || value == Some(kept),
                    "{:x?} {rax:#x} {rdi:#x}",
                    e.bytes()
                );
                translated += 1;
                valued += usize::from(value.is_some() && !undecided);
            }
        }
        assert!(translated > CASES / 10, "{translated} are translated");
        assert!(valued > CASES / 20, "{valued} have a value");
    }

    #[test]
    fn memory_is_read_in_all_sizes() {
        let words = [0xffff_ffff_ffff_fffeu64, 1];
        for (read, bits) in [(0x17, 8), (0x18, 16), (0x19, 32), (0x1a, 64)] {
            // *$rdi, as a signed number, == -2
            let mut code = vec![0x26, 0, 5, read, 0x16, bits, 0x22, 2, 0x02, 0x0e, 0x27];
            let at = words.as_ptr() as u64;
            let e = Expression::new(code.clone()).expect("short");
            assert_eq!(runs(&e, 0, at), Some(true), "{bits}");
            code[7] = 3;
            let e = Expression::new(code).expect("short");
            assert_eq!(runs(&e, 0, at), Some(false), "{bits}");
        }
    }

    #[test]
    fn what_loops_or_has_no_end_is_not_translated() {
        for bytes in [&[0x21, 0, 0][..], &[0x22, 1], &[0x22, 1, 0x20, 0, 90, 0x27]] {
            let e = Expression::new(bytes.to_vec()).expect("short");
            assert_eq!(runs(&e, 0, 0), None, "{bytes:x?}");
        }
    }
}
