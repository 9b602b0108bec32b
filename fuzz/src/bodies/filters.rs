//! See `fuzz_targets/filters.rs`.

use super::bytes::Bytes;
use reprise_runtime::gate::seccomp::bpf::{run, Data, Instruction};
use std::cell::Cell;

/// Most instructions of a filter (BPF_MAXINSNS, seccomp(2)).
const MOST: usize = 4096;

/// Asks the filter in `data` about a call, of which its first bytes tell.
pub fn filters(data: &[u8]) {
    let mut data = Bytes(data);
    let call = Data {
        nr: data.u16().into(),
        arch: data.u32(),
        pc: data.u64(),
        args: std::array::from_fn(|_| data.u64()),
    };
    let mut program = Vec::new();
    while !data.0.is_empty() && program.len() < MOST {
        let word = data.u64();
        let i = Instruction::from_word(word);
        assert_eq!(i.to_word(), word);
        program.push(i);
    }
    let steps = Cell::new(0);
    let ask = || {
        steps.set(0);
        run(
            program.len(),
            |at| {
                steps.set(steps.get() + 1);
                program[at]
            },
            &call,
        )
    };
    let verdict = ask();
    assert!(steps.get() <= program.len(), "it goes back");
    assert_eq!(ask(), verdict, "a replay would have another verdict");
}
