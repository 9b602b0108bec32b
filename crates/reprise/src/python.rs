//! Python's frames beside native ones: which native frame runs which of Python's functions.
//!
//! The replay tells of Python's stacks ([`reprise_debug::python`]), gdb of the native one. A run of Python's functions names an address in the native frame
//! of the interpreter's loop that runs them, so it belongs to the frame within whose part of the stack that is: no name of a function is needed
//! for it, and an interpreter without symbols will do. Only where the address isn't known the loop's name decides.

use reprise_debug::python::{Frame, Stack, Variable};
use serde_json::{json, Value};
use std::fmt::Write;

/// How the name of the interpreter's loop begins, whatever its compiler has made of it.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// A native frame, as far as it is needed.
#[derive(Clone, Debug, Default)]
pub struct Native {
    /// Where its part of the stack begins.
    pub sp: Option<u64>,
    /// Its function.
    pub function: Option<String>,
}

/// For each native frame, innermost first, which of Python's it runs, innermost first. What has no place stands at the outermost one.
pub fn placed(natives: &[Native], stack: &Stack) -> Vec<Vec<Frame>> {
    let mut found: Vec<Vec<Frame>> = vec![Vec::new(); natives.len()];
    let mut next = 0;
    for run in &stack.runs {
        let named = || {
            let is_loop = |n: &Native| n.function.as_ref().is_some_and(|f| f.starts_with(LOOP));
            let rest = natives.get(next..)?;
            Some(next + rest.iter().position(is_loop)?)
        };
        let place = place(natives, run.at).or_else(named);
        let place = place.unwrap_or(natives.len().saturating_sub(1));
        if let Some(frames) = found.get_mut(place) {
            frames.extend(run.frames.iter().cloned());
            next = place + 1;
        }
    }
    found
}

/// The native frame whose part of the stack holds an address. A signal handler may have a stack of its own, so neighbours need not be in order.
fn place(natives: &[Native], at: u64) -> Option<usize> {
    let ends = natives.iter().skip(1).map(|n| n.sp).chain([Some(u64::MAX)]);
    let holds = |(native, end): (&Native, Option<u64>)| match (native.sp, end) {
        (Some(begin), Some(end)) => (begin..end).contains(&at),
        _ => false,
    };
    natives.iter().zip(ends).position(holds)
}

/// Lines about frames, which stand before the native one that runs them.
pub fn lines(frames: &[Frame]) -> String {
    let mut out = String::new();
    for frame in frames {
        let place = match frame.line {
            Some(line) => format!("{}:{line}", frame.file),
            None => frame.file.clone(),
        };
        let _ = writeln!(out, "  py  {} at {place}", frame.function);
        for local in &frame.locals {
            let _ = writeln!(out, "        {} = {}", local.name, local.value);
        }
    }
    out
}

/// Places Python's functions in a thread as a coding agent is told of it. Of its native frames, which are in `thread["frames"]` with their `sp`, the first
/// `most` stay, and those beyond that run Python's functions, of which `most` are told of as well; each has its number, since some are left out.
/// Variables may take so many bytes as `room`: those of the innermost functions come first.
pub fn place_in(thread: &mut Value, stack: &Stack, most: usize, mut room: usize) {
    let Some(frames) = thread["frames"].as_array_mut() else {
        return;
    };
    let native = |frame: &mut Value| Native {
        sp: frame.as_object_mut().and_then(|f| f.remove("sp")?.as_u64()),
        function: frame["function"].as_str().map(String::from),
    };
    let natives: Vec<Native> = frames.iter_mut().map(native).collect();
    let (mut left, mut is_cut) = (most, stack.is_cut);
    let all = std::mem::take(frames).into_iter();
    for ((mut frame, mut python), i) in all.zip(placed(&natives, stack)).zip(0..) {
        is_cut |= python.len() > left;
        python.truncate(left);
        left -= python.len();
        if i >= most && python.is_empty() {
            continue;
        }
        for one in &mut python {
            let size = |v: &Variable| v.name.len() + v.value.len();
            let used: usize = one.locals.iter().map(size).sum();
            if used > room {
                one.locals.clear();
                is_cut = true;
            }
            room = room.saturating_sub(used);
        }
        frame["frame"] = i.into();
        if !python.is_empty() {
            frame["python"] = json!(python);
        }
        frames.push(frame);
    }
    if is_cut {
        thread["python_is_cut"] = true.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_debug::python::Run;

    fn natives(sps: &[u64]) -> Vec<Native> {
        let native = |sp: &u64| Native {
            sp: Some(*sp).filter(|sp| *sp != 0),
            function: None,
        };
        sps.iter().map(native).collect()
    }

    fn stack(runs: &[(u64, &[&str])]) -> Stack {
        let frame = |name: &&str| Frame {
            function: name.to_string(),
            ..Frame::default()
        };
        let run = |(at, names): &(u64, &[&str])| Run {
            at: *at,
            frames: names.iter().map(frame).collect(),
        };
        Stack {
            runs: runs.iter().map(run).collect(),
            ..Stack::default()
        }
    }

    fn names(natives: &[Native], stack: &Stack) -> Vec<String> {
        let of_one = |frames: Vec<Frame>| {
            let names: Vec<String> = frames.into_iter().map(|f| f.function).collect();
            names.join(",")
        };
        placed(natives, stack).into_iter().map(of_one).collect()
    }

    #[test]
    fn a_run_stands_where_its_loop_has_its_stack() {
        let natives = natives(&[0x100, 0x200, 0x200, 0x300, 0x400]);
        let runs = stack(&[(0x250, &["c", "b"]), (0x300, &["a"]), (0x900, &["m"])]);
        // The frame that is put into another one has no stack of its own.
        assert_eq!(names(&natives, &runs), ["", "", "c,b", "a", "m"]);
    }

    #[test]
    fn a_handler_may_be_on_another_stack() {
        let natives = natives(&[0x7100, 0x7200, 0x100, 0x200]);
        let runs = stack(&[(0x110, &["b"]), (0x220, &["a"])]);
        assert_eq!(names(&natives, &runs), ["", "", "b", "a"]);
    }

    #[test]
    fn what_has_no_address_stands_at_the_next_loop() {
        let mut all = natives(&[0x100, 0x200, 0x300, 0]);
        for i in [1, 2] {
            all[i].function = Some(format!("{LOOP}.cold"));
        }
        assert_eq!(names(&all, &stack(&[(0, &["a"])])), ["", "a", "", ""]);
        let runs = stack(&[(0x210, &["b"]), (0, &["a"]), (0, &["z"])]);
        assert_eq!(names(&all, &runs), ["", "b", "a", "z"]);
        assert!(placed(&[], &runs).is_empty());
    }

    #[test]
    fn an_agent_is_told_of_functions_beyond_the_limit_of_frames() {
        let frame = |i: u64| json!({"function": "f", "sp": 0x100 * i});
        let frames: Vec<Value> = (1..=6).map(frame).collect();
        let mut thread = json!({"thread": 1, "frames": frames});
        let runs = stack(&[(0x310, &["c", "b"]), (0x610, &["a", "m"])]);
        place_in(&mut thread, &runs, 3, 100);
        let told = thread["frames"].as_array().expect("frames");
        let numbers: Vec<_> = told.iter().map(|f| f["frame"].as_u64()).collect();
        assert_eq!(numbers, [0, 1, 2, 5].map(Some));
        assert_eq!(told[3]["python"].as_array().map(Vec::len), Some(1));
        assert_eq!(thread["python_is_cut"], true);
    }

    #[test]
    fn variables_take_no_more_than_their_room() {
        let mut runs = stack(&[(0x110, &["c", "b", "a"])]);
        for (frame, len) in runs.runs[0].frames.iter_mut().zip([9, 100, 5]) {
            frame.locals = vec![Variable {
                name: "v".into(),
                value: "x".repeat(len),
            }];
        }
        let mut thread = json!({"frames": [{"function": "f", "sp": 0x100}]});
        place_in(&mut thread, &runs, 5, 20);
        let told = &thread["frames"][0]["python"];
        assert_eq!(told[0]["locals"][0]["value"], "x".repeat(9));
        assert!(told[1]["locals"].is_null() && thread["python_is_cut"] == true);
    }
}
