//! Threads, their frames and sources. A thread has the id that it had in the recording, so that it keeps it however often the replay goes back past its birth.

use super::mi;
use super::session::Session;
use crate::python::{placed, Native};
use anyhow::{Context, Result};
use reprise_debug::python;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Frames that are told of when nobody says how many.
const MOST_FRAMES: i64 = 1000;
/// Threads that are told of.
const MOST_THREADS: usize = 8192;

/// A thread.
struct Thread {
    /// gdb's number.
    number: i64,
    name: String,
}

/// A frame that was told of.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// gdb's number of the thread.
    pub thread: i64,
    /// How many frames it has called.
    pub level: i64,
    /// It is a function of Python's that this frame runs: its number among those that were told of.
    pub python: Option<usize>,
}

/// Frames of a thread, with what gdb says of native ones.
type Mixed = Vec<(Frame, Value)>;

/// What is known of where the replay stands.
#[derive(Default)]
pub struct Frames {
    /// By their ids in the recording.
    threads: BTreeMap<i64, Thread>,
    /// gdb's number of the one that has stopped.
    current: i64,
    told: Vec<Frame>,
    /// Functions of Python's that were told of.
    python: Vec<python::Frame>,
    /// All frames of threads that are in Python, by gdb's number of the thread, with what gdb says of native ones; none: it isn't.
    in_python: BTreeMap<i64, Option<Rc<Mixed>>>,
    /// Numbers of frames that were told of before it last moved.
    before: i64,
}

impl Frames {
    /// Is anything there?
    pub fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// It stands somewhere else.
    pub fn has_stopped(&mut self, stop: &Value) {
        if let Some(number) = mi::number(stop, "thread-id") {
            self.current = number;
        }
    }

    /// What was told of frames holds no more.
    pub fn forget(&mut self) {
        self.before += self.told.len() as i64;
        self.told.clear();
        self.python.clear();
        self.in_python.clear();
    }

    /// The thread that has stopped, by its id in the recording.
    pub fn current(&self) -> i64 {
        let mut all = self.threads.iter();
        all.find(|(_, t)| t.number == self.current)
            .map_or(0, |(tid, _)| *tid)
    }

    fn number_of(&self, tid: &Value) -> Result<i64> {
        let tid = tid.as_i64().context("threadId is a number")?;
        let thread = self.threads.get(&tid);
        Ok(thread
            .with_context(|| format!("there is no thread {tid} here"))?
            .number)
    }

    fn tell(&mut self, frame: Frame) -> i64 {
        self.told.push(frame);
        self.before + self.told.len() as i64
    }

    /// A frame that was told of.
    ///
    /// # Errors
    /// When it was not, since it last moved.
    pub fn frame(&self, id: &Value) -> Result<Frame> {
        let id = id.as_i64().context("frameId is a number")?;
        let i = id.checked_sub(self.before + 1);
        let frame = i.and_then(|i| self.told.get(usize::try_from(i).ok()?));
        frame
            .copied()
            .context("this frame is of another moment: ask for the stack again")
    }

    /// The frame that has stopped.
    pub fn newest(&self) -> Frame {
        Frame {
            thread: self.current,
            level: 0,
            python: None,
        }
    }

    /// The function of Python's that a frame stands for.
    pub fn python(&self, frame: Frame) -> Option<&python::Frame> {
        self.python.get(frame.python?)
    }
}

impl Session {
    /// The thread that is meant, as an option of gdb's commands.
    ///
    /// # Errors
    /// When there is none.
    pub fn thread_option(&self, arguments: &Value) -> Result<String> {
        let number = self.frames.number_of(&arguments["threadId"])?;
        Ok(format!("--thread {number}"))
    }

    /// Asks for all threads.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn refresh_threads(&mut self) -> Result<()> {
        let told = self.mi("-thread-info")?;
        let mut all = BTreeMap::new();
        for one in mi::list(&told, "threads").iter().take(MOST_THREADS) {
            let Some(number) = mi::number(one, "id") else {
                continue;
            };
            // "Thread 1.29725": the process, as gdb counts, and the thread.
            let target = mi::text(one, "target-id").unwrap_or("");
            let tid = target
                .rsplit(['.', ' '])
                .next()
                .and_then(|t| t.parse().ok());
            let tid: i64 = tid.unwrap_or(number);
            let name = match (mi::text(one, "name"), mi::text(one, "details")) {
                (Some(name), _) => format!("{name} {tid}"),
                (None, Some(details)) => format!("thread {tid} ({details})"),
                (None, None) => format!("thread {tid}"),
            };
            all.insert(tid, Thread { number, name });
        }
        if let Some(number) = mi::number(&told, "current-thread-id") {
            self.frames.current = number;
        }
        self.frames.threads = all;
        Ok(())
    }

    /// Tells of threads that have come and gone since this was last called.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn tell_threads(&mut self) -> Result<()> {
        let is_known = self.frames.current() != 0;
        if !std::mem::take(&mut self.threads_changed) && is_known {
            return Ok(());
        }
        let before: Vec<i64> = self.frames.threads.keys().copied().collect();
        self.refresh_threads()?;
        let now: Vec<i64> = self.frames.threads.keys().copied().collect();
        let came = now
            .iter()
            .filter(|t| !before.contains(t))
            .map(|t| ("started", t));
        let went = before
            .iter()
            .filter(|t| !now.contains(t))
            .map(|t| ("exited", t));
        for (reason, tid) in came.chain(went) {
            self.mouth
                .event("thread", json!({"reason": reason, "threadId": tid}));
        }
        Ok(())
    }

    /// `threads`. While it runs, those that were there.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn threads(&mut self) -> Result<Value> {
        if self.moving.is_none() {
            let current = self.frames.current;
            self.refresh_threads()?;
            if current != 0 {
                self.frames.current = current;
            }
        }
        let threads = self.frames.threads.iter();
        let all: Vec<Value> = threads
            .map(|(tid, t)| json!({"id": tid, "name": t.name}))
            .collect();
        Ok(json!({"threads": all}))
    }

    /// `stackTrace`.
    ///
    /// # Errors
    /// When there is no such thread.
    pub fn stack_trace(&mut self, arguments: &Value) -> Result<Value> {
        let number = self.frames.number_of(&arguments["threadId"])?;
        let first = arguments["startFrame"].as_i64().unwrap_or(0);
        let first = first.clamp(0, i64::from(i32::MAX));
        let levels = arguments["levels"].as_i64().filter(|n| *n > 0);
        let levels = levels.unwrap_or(MOST_FRAMES).min(MOST_FRAMES);
        if let Some(all) = self.in_python(number, &arguments["threadId"])? {
            let page = all.iter().skip(first as usize).take(levels as usize);
            let frames: Result<Vec<Value>> = page
                .map(|(frame, one)| self.any_frame_for_client(*frame, one))
                .collect();
            return Ok(json!({"stackFrames": frames?, "totalFrames": all.len()}));
        }
        let last = first + levels - 1;
        let stack = self.mi(&format!(
            "-stack-list-frames --thread {number} {first} {last}"
        ));
        let stack = match stack {
            // gdb says so when there are none from there on.
            Err(why) if first > 0 && why.to_string().contains("Not enough frames") => {
                json!({"stack": []})
            }
            stack => stack?,
        };
        let listed = mi::list(&stack, "stack");
        let mut frames = Vec::with_capacity(listed.len());
        for one in listed {
            let level = mi::number(one, "level").unwrap_or(0);
            let id = self.frames.tell(Frame {
                thread: number,
                level,
                python: None,
            });
            frames.push(self.frame_for_client(id, one)?);
        }
        let known = first + frames.len() as i64;
        // One more says that there may be more.
        let more = i64::from(frames.len() as i64 == levels);
        Ok(json!({"stackFrames": frames, "totalFrames": known + more}))
    }

    /// All frames of a thread that is in Python; `None`: it isn't.
    fn in_python(&mut self, number: i64, tid: &Value) -> Result<Option<Rc<Mixed>>> {
        if let Some(known) = self.frames.in_python.get(&number) {
            return Ok(known.clone());
        }
        let told = self.monitor(&format!("python {tid}"))?;
        let told: python::Stacks = serde_json::from_str(&told).unwrap_or_default();
        let all = match told.threads.first() {
            Some(stack) => Some(Rc::new(self.mixed(number, stack)?)),
            None => None,
        };
        self.frames.in_python.insert(number, all.clone());
        Ok(all)
    }

    /// All frames of a thread, Python's before the native ones that run them, with what gdb says of the native ones.
    fn mixed(&mut self, number: i64, stack: &python::Stack) -> Result<Mixed> {
        let listed = self.mi(&format!(
            "-stack-list-frames --thread {number} 0 {}",
            MOST_FRAMES - 1
        ))?;
        let listed = mi::list(&listed, "stack");
        let mut natives = Vec::with_capacity(listed.len());
        for (one, level) in listed.iter().zip(0..) {
            natives.push(Native {
                sp: self.stack_pointer(number, level),
                function: mi::text(one, "func").map(String::from),
            });
        }
        let mut all = Vec::new();
        let placed = placed(&natives, stack);
        for ((one, python), level) in listed.iter().zip(placed).zip(0..) {
            for function in python {
                self.frames.python.push(function);
                let frame = Frame {
                    thread: number,
                    level,
                    python: Some(self.frames.python.len() - 1),
                };
                all.push((frame, Value::Null));
            }
            let frame = Frame {
                thread: number,
                level,
                python: None,
            };
            all.push((frame, one.clone()));
        }
        Ok(all)
    }

    fn stack_pointer(&mut self, thread: i64, level: i64) -> Option<u64> {
        let command = format!("-data-evaluate-expression --thread {thread} --frame {level} $sp");
        let told = self.mi(&command).ok()?;
        // With a type before it, in some languages.
        let (_, digits) = mi::text(&told, "value")?.split_once("0x")?;
        let end = digits.find(|c: char| !c.is_ascii_hexdigit());
        u64::from_str_radix(&digits[..end.unwrap_or(digits.len())], 16).ok()
    }

    fn any_frame_for_client(&mut self, frame: Frame, one: &Value) -> Result<Value> {
        let id = self.frames.tell(frame);
        let Some(function) = self.frames.python(frame).cloned() else {
            return self.frame_for_client(id, one);
        };
        let line = function.line.map_or(0, |line| self.line_for(line.into()));
        let mut told = json!({"id": id, "name": function.function, "column": 0, "line": line});
        if let Some(source) = self.source(&json!({"fullname": function.file}))? {
            told["source"] = source;
        }
        Ok(told)
    }

    fn frame_for_client(&mut self, id: i64, one: &Value) -> Result<Value> {
        let address = mi::text(one, "addr").unwrap_or("");
        let name = mi::text(one, "func").unwrap_or(address);
        let line = mi::number(one, "line").unwrap_or(0);
        let mut frame = json!({"id": id, "name": name, "column": 0,
            "line": if line > 0 { self.line_for(line) } else { 0 }});
        if !address.is_empty() {
            frame["instructionPointerReference"] = address.into();
        }
        match self.source(one)? {
            Some(source) => frame["source"] = source,
            None => {
                frame["presentationHint"] = "subtle".into();
                if let Some(library) = mi::text(one, "from") {
                    let library = self.as_recorded(library)?;
                    frame["name"] = format!("{name} ({library})").into();
                }
            }
        }
        Ok(frame)
    }

    /// A path as it was in the recording.
    fn as_recorded(&mut self, path: &str) -> Result<String> {
        let root = self.gdb()?.root();
        let inside = path.strip_prefix(&*root.to_string_lossy());
        Ok(inside.unwrap_or(path).to_string())
    }

    /// The source file of a frame or a breakpoint.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn source(&mut self, one: &Value) -> Result<Option<Value>> {
        let full = mi::text(one, "fullname").or(mi::text(one, "file"));
        let Some(full) = full.filter(|f| !f.is_empty()) else {
            return Ok(None);
        };
        let path = self.as_recorded(full)?;
        let name = path.rsplit('/').next().unwrap_or(&path).to_string();
        let mut source = json!({"name": name, "path": path});
        if !std::path::Path::new(&path).is_file() {
            // Editors can't open it.
            source["presentationHint"] = "deemphasize".into();
            source["origin"] = "not found here".into();
        }
        Ok(Some(source))
    }
}
