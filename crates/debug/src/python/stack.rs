//! The interpreters of a process, their threads, and the frames of these.

use super::code::Code;
use super::layout::{Ends, Layout};
use super::memory::Memory;
use super::value::Values;
use super::{Frame, Native, Run, Stack, Stacks, Variable};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Most interpreters in a process.
const MOST_INTERPRETERS: usize = 256;
/// Most states of threads, in all of them.
const MOST_STATES: usize = 16_384;
/// Most frames of a thread, with the loops that run them.
const MOST_FRAMES: usize = 1000;
/// Most frames of all threads.
const MOST_IN_ALL: usize = 100_000;
/// Most bytes of all values of variables.
const MOST_VALUES: usize = 1 << 20;
/// In a frame's owner: from here on it is none of a function's, but lies on the native stack and says where a loop begins.
const NO_FUNCTION: u8 = 3;
/// What a variable is: one that several functions share.
const CELL_OR_FREE: u8 = 0x40 | 0x80;

/// A thread's state in an interpreter.
struct State {
    pointer: u64,
    number: u64,
    at: u64,
}

/// Stacks of the threads that are wanted.
pub(super) fn all(memory: &Memory, layout: &Layout, runtime: u64, wanted: &[Native]) -> Stacks {
    let mut walk = Walk {
        memory,
        layout,
        codes: HashMap::new(),
        frames: 0,
        values: 0,
    };
    let states = walk.states(runtime);
    let mut threads = Vec::new();
    for native in wanted {
        // The thread pointer is the thread's own, in whichever namespace its number was given.
        let is_it = |s: &&State| match s.pointer {
            0 => false,
            pointer => pointer == native.pointer,
        };
        let mut own: Vec<&State> = states.iter().filter(is_it).collect();
        if own.is_empty() {
            let is_it = |s: &&State| s.number == u64::from(native.thread);
            own = states.iter().filter(is_it).collect();
        }
        let mut stack = Stack {
            thread: native.thread,
            ..Stack::default()
        };
        for state in own {
            walk.frames_of(state.at, &mut stack);
        }
        if !stack.runs.is_empty() || stack.is_cut {
            threads.push(stack);
        }
    }
    Stacks { threads }
}

struct Walk<'a> {
    memory: &'a Memory<'a>,
    layout: &'a Layout,
    codes: HashMap<u64, Option<Rc<Code>>>,
    /// Frames and bytes of values that were told of.
    frames: usize,
    values: usize,
}

impl Walk<'_> {
    fn word(&self, at: u64, offset: u64) -> Option<u64> {
        self.memory.word(at.checked_add(offset)?)
    }

    fn pointer(&self, at: u64, offset: u64) -> Option<u64> {
        self.memory.pointer(at.checked_add(offset)?)
    }

    fn states(&self, runtime: u64) -> Vec<State> {
        let s = &self.layout.states;
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut interpreter = self.pointer(runtime, s.interpreters);
        for _ in 0..MOST_INTERPRETERS {
            let Some(here) = interpreter else { break };
            let mut state = self.pointer(here, s.threads);
            while let Some(at) = state.filter(|at| seen.len() < MOST_STATES && seen.insert(*at)) {
                let number = self.word(at, s.number);
                if let (Some(pointer), Some(number)) = (self.word(at, s.pointer), number) {
                    found.push(State {
                        pointer,
                        number,
                        at,
                    });
                }
                state = self.pointer(at, s.next_thread);
            }
            interpreter = self.pointer(here, s.next_interpreter);
        }
        found
    }

    fn frames_of(&mut self, state: u64, stack: &mut Stack) {
        let Some(first) = self.pointer(state, self.layout.states.innermost) else {
            return;
        };
        let mut seen = HashSet::new();
        match self.layout.ends {
            Ends::Owned => self.runs_that_frames_end(Some(first), &mut seen, stack),
            Ends::Reached { innermost } => {
                let first = self.pointer(first, innermost);
                self.runs_that_frames_end(first, &mut seen, stack);
            }
            Ends::Loop {
                innermost,
                next,
                is_outermost,
            } => {
                let mut reached = Some(first);
                while let Some(at) = reached {
                    let first = self.pointer(at, innermost);
                    let mut run = Run {
                        at,
                        frames: Vec::new(),
                    };
                    let is_sound =
                        seen.insert(at) && self.run(first, is_outermost, &mut seen, &mut run);
                    keep(run, stack);
                    if !is_sound {
                        stack.is_cut = true;
                        break;
                    }
                    reached = self.pointer(at, next);
                }
            }
        }
    }

    /// The frames of a loop, from its innermost one to that which says that it is the outermost. False: there is one that can't be read.
    fn run(
        &mut self,
        first: Option<u64>,
        is_outermost: u64,
        seen: &mut HashSet<u64>,
        run: &mut Run,
    ) -> bool {
        let mut frame = first;
        while let Some(here) = frame {
            if !self.add(here, seen, run) {
                return false;
            }
            let ends = here.checked_add(is_outermost);
            frame = match ends.and_then(|at| self.memory.byte(at)) {
                Some(0) => self.pointer(here, self.layout.frames.previous),
                _ => None,
            };
        }
        true
    }

    /// Runs, each of which a frame ends that is no function's.
    fn runs_that_frames_end(
        &mut self,
        first: Option<u64>,
        seen: &mut HashSet<u64>,
        stack: &mut Stack,
    ) {
        let (mut frame, mut run) = (first, Run::default());
        while let Some(here) = frame {
            let owner = here.checked_add(self.layout.frames.owner);
            let Some(owner) = owner.and_then(|at| self.memory.byte(at)) else {
                stack.is_cut = true;
                break;
            };
            if owner >= NO_FUNCTION {
                run.at = here;
                keep(std::mem::take(&mut run), stack);
                if !seen.insert(here) {
                    stack.is_cut = true;
                    break;
                }
            } else if !self.add(here, seen, &mut run) {
                stack.is_cut = true;
                break;
            }
            frame = self.pointer(here, self.layout.frames.previous);
        }
        keep(run, stack);
    }

    /// Adds a frame to a run. False: it is none, or there are too many.
    fn add(&mut self, at: u64, seen: &mut HashSet<u64>, run: &mut Run) -> bool {
        if self.frames >= MOST_IN_ALL || seen.len() >= MOST_FRAMES || !seen.insert(at) {
            return false;
        }
        let Some(frame) = self.frame(at) else {
            return false;
        };
        self.frames += 1;
        run.frames.extend(frame);
        true
    }

    /// A frame; `Some(None)`: one of the interpreter's own. `None`: there is none.
    fn frame(&mut self, at: u64) -> Option<Option<Frame>> {
        /// Tags of references.
        const TAGS: u64 = 3;
        let f = &self.layout.frames;
        let code = self.pointer(at, f.code)? & !TAGS;
        let code = self.code(code)?;
        if code.is_internal() {
            return Some(None);
        }
        let instruction = self.word(at, f.instruction)?;
        Some(Some(Frame {
            function: code.function.clone(),
            file: code.file.clone(),
            line: code.line(instruction),
            locals: self.variables(at, &code),
        }))
    }

    fn code(&mut self, at: u64) -> Option<Rc<Code>> {
        let (memory, layout) = (self.memory, self.layout);
        let read = || Code::read(memory, layout, at).map(Rc::new);
        self.codes.entry(at).or_insert_with(read).clone()
    }

    fn variables(&mut self, frame: u64, code: &Code) -> Vec<Variable> {
        let values = Values::new(self.memory, self.layout);
        let mut found = Vec::new();
        for ((name, kind), i) in code.locals.iter().zip(0..) {
            let word = self.word(frame, self.layout.frames.locals + 8 * i);
            let value = word.and_then(|w| values.variable(w, kind & CELL_OR_FREE != 0));
            let Some(value) = value.filter(|_| self.values < MOST_VALUES) else {
                continue;
            };
            self.values += name.len() + value.len();
            found.push(Variable {
                name: name.clone(),
                value,
            });
        }
        found
    }
}

fn keep(run: Run, stack: &mut Stack) {
    if !run.frames.is_empty() {
        stack.runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{Maker, FRAMES, LOOPS, NUMBER, POINTER, RUNTIME};
    use super::super::memory::tests::Made;
    use super::*;
    use proptest::prelude::*;

    const THREAD: Native = Native {
        thread: NUMBER as u32,
        pointer: POINTER,
    };

    fn stacks(made: &Made, layout: &Layout, wanted: &[Native]) -> Stacks {
        let read = |at: u64, into: &mut [u8]| made.read(at, into);
        all(&Memory::new(&read), layout, RUNTIME, wanted)
    }

    fn function(name: &str, line: u32, locals: &[(&str, &str)]) -> Frame {
        let variable = |(name, value): &(&str, &str)| Variable {
            name: name.to_string(),
            value: value.to_string(),
        };
        Frame {
            function: name.into(),
            file: "/made.py".into(),
            line: Some(line),
            locals: locals.iter().map(variable).collect(),
        }
    }

    #[test]
    fn each_version_has_its_runs() {
        for layout in Layout::some() {
            let made = Maker::new(&layout).process();
            let found = stacks(&made, &layout, &[THREAD]);
            let inner = function("inner", 11, &[("n", "-7"), ("word", "'grün'")]);
            let runs = [(LOOPS[0], inner), (LOOPS[1], function("outer", 12, &[]))];
            let runs = runs.map(|(at, frame)| Run {
                at,
                frames: vec![frame],
            });
            let wanted = Stack {
                thread: THREAD.thread,
                runs: runs.into(),
                is_cut: false,
            };
            assert_eq!(found.threads, [wanted], "{layout:?}");
        }
    }

    #[test]
    fn a_thread_is_known_by_its_pointer_or_its_number() {
        let layout = Layout::some()[2];
        let made = Maker::new(&layout).process();
        let found = |thread, pointer| stacks(&made, &layout, &[Native { thread, pointer }]).threads;
        // In another namespace it has another number.
        assert_eq!(found(1, POINTER).len(), 1);
        assert_eq!(found(THREAD.thread, 0x77).len(), 1);
        assert!(found(1, 0x77).is_empty());
    }

    #[test]
    fn what_leads_in_a_circle_ends() {
        for layout in Layout::some() {
            let mut made = Maker::new(&layout).process();
            let (at, from) = match layout.ends {
                Ends::Loop { next, .. } => (LOOPS[1] + next, LOOPS[0]),
                _ => (LOOPS[1] + layout.frames.previous, FRAMES[0]),
            };
            let place = at & !0xfff;
            let mut bytes = [0; 128];
            made.read(place, &mut bytes);
            bytes[(at - place) as usize..][..8].copy_from_slice(&from.to_le_bytes());
            made.put(place, &bytes);
            let found = stacks(&made, &layout, &[THREAD]);
            let [stack] = &found.threads[..] else {
                panic!("{found:?}")
            };
            assert!(stack.is_cut && stack.runs.len() == 2, "{stack:?}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_process_has_a_short_stack(
            which in 0..3usize,
            damage in prop::collection::vec((0..100_000usize, any::<u8>()), 1..20),
        ) {
            let layout = Layout::some()[which];
            let mut made = Maker::new(&layout).process();
            let mut all: Vec<&mut u8> = made.all().collect();
            for (at, byte) in damage {
                let len = all.len();
                *all[at % len] = byte;
            }
            let found = stacks(&made, &layout, &[THREAD]);
            let frames = |s: &Stack| s.runs.iter().map(|r| r.frames.len()).sum::<usize>();
            prop_assert!(found.threads.iter().all(|t| frames(t) <= 2));
        }

        #[test]
        fn any_memory_has_a_stack_that_ends(which in 0..3usize, bytes in prop::collection::vec(any::<u8>(), 8..400)) {
            let layout = Layout::some()[which];
            // All addresses are there, and lead to each other.
            let read = |at: u64, into: &mut [u8]| {
                for (to, i) in into.iter_mut().zip(at..) {
                    *to = bytes[(i % bytes.len() as u64) as usize];
                }
                true
            };
            let found = all(&Memory::new(&read), &layout, RUNTIME, &[THREAD]);
            let frames = found.threads.iter().flat_map(|t| &t.runs).map(|r| r.frames.len());
            prop_assert!(frames.sum::<usize>() <= 2 * MOST_FRAMES);
        }
    }
}
