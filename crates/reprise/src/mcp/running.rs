//! A program that is recorded for a client: `reprise record` as a child, with limits. When its time is over the program is ended, with all that came of it,
//! and the trace is closed as after any end: what a program that hangs did is there to be asked.

use super::child::{ends_with_us, own};
use crate::recordings::programs_of;
use anyhow::{Context, Result};
use reprise_launch::process;
use rustix::process::Signal;
use serde_json::{json, Value};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::{timeout_at, Instant};

/// Between two rounds in which what is left of the program is ended.
const ROUND: Duration = Duration::from_millis(100);
/// How long a recording may take to close its trace.
const GRACE: Duration = Duration::from_secs(10);
/// After this part of it, the recorder is asked to leave alone what can't be ended.
const FIRST: Duration = Duration::from_secs(3);
/// When the program has ended, whoever still holds its outputs is heard no longer than that.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What is to be recorded.
pub struct Wanted {
    /// Options of `record`, and the command line.
    pub arguments: Vec<OsString>,
    /// Where the program runs.
    pub directory: Option<PathBuf>,
    /// Variables that it is given besides.
    pub environment: BTreeMap<String, String>,
    /// What it reads.
    pub input: Option<String>,
    /// Bytes that are kept of each of its outputs, half of them of the beginning.
    pub kept: usize,
}

/// How it went.
pub struct Ran {
    /// The exit status of `record`: that of the program, 128 and the number of a signal; 125 and more when there was no recording.
    pub status: Option<i32>,
    /// The program was ended since its time was over.
    pub timed_out: bool,
    /// What it wrote.
    pub output: Kept,
    /// The same, to the standard error.
    pub errors: Kept,
}

/// The beginning and the end of what was written.
pub struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    all: u64,
}

impl Kept {
    fn new(kept: usize) -> Kept {
        Kept {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: kept / 2,
            all: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.all += bytes.len() as u64;
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let too_many = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..too_many);
    }

    /// As text.
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let left = self.all - (self.head.len() + tail.len()) as u64;
        let between = match left {
            0 => String::new(),
            n => format!("\n... ({n} bytes left out) ...\n"),
        };
        if left == 0 {
            let all = [&self.head[..], &tail].concat();
            return String::from_utf8_lossy(&all).into_owned();
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&self.head) + &between + &text(&tail)
    }

    /// For an answer; none, where nothing was written.
    pub fn value(&self) -> Value {
        match self.all {
            0 => Value::Null,
            _ => json!(self.text()),
        }
    }
}

async fn keep(from: &mut Option<impl AsyncRead + Unpin>, kept: &mut Kept) {
    let mut buffer = [0; 4096];
    if let Some(from) = from {
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            kept.add(&buffer[..n]);
        }
    }
}

/// A recording that is ended with all that belongs to it, when nobody wants it any more.
struct Recording(Child);

impl Drop for Recording {
    fn drop(&mut self) {
        // It has been reaped else.
        if let Some(pid) = self.0.id() {
            end_programs(pid);
        }
    }
}

fn end_programs(launcher: u32) -> usize {
    let all = programs_of(launcher as i32);
    for pid in &all {
        // A process that has this recording's session in its memory.
        let _ = process::send(*pid, Signal::KILL);
    }
    all.len()
}

impl Recording {
    /// Ends the program, and waits for the recorder.
    async fn stop(&mut self) -> Result<Option<i32>> {
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            if let Some(pid) = self.0.id() {
                end_programs(pid);
                if begun.elapsed() > FIRST {
                    // Our own child, which has not been reaped.
                    let _ = process::send(pid as i32, Signal::TERM);
                }
            }
            if let Ok(status) = timeout_at(Instant::now() + ROUND, self.0.wait()).await {
                return Ok(status.context("wait for the recording")?.code());
            }
        }
        self.0.kill().await.context("end the recording")?;
        Ok(None)
    }
}

/// Records a program until it ends, or until `end`.
///
/// # Errors
/// When `record` can't be started.
pub async fn record(wanted: Wanted, end: Instant) -> Result<Ran> {
    let mut command = own(&wanted.arguments)?;
    // It is to close its trace: the signal goes to the program, whose end it waits for.
    command.kill_on_drop(false);
    ends_with_us(&mut command, Signal::TERM);
    command.envs(&wanted.environment);
    if let Some(directory) = &wanted.directory {
        command.current_dir(directory);
    }
    if wanted.input.is_some() {
        command.stdin(Stdio::piped());
    }
    let child = command.spawn();
    let mut child = child.context("start the recording (is there such a directory?)")?;
    let (mut input, mut out, mut err) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut recording = Recording(child);
    let (mut output, mut errors) = (Kept::new(wanted.kept), Kept::new(wanted.kept));
    let mut timed_out = false;
    let status = {
        let feed = async {
            if let (Some(mut to), Some(text)) = (input.take(), &wanted.input) {
                // One that does not read it all has its reasons.
                let _ = to.write_all(text.as_bytes()).await;
            }
        };
        let listen = async {
            tokio::join!(
                feed,
                keep(&mut out, &mut output),
                keep(&mut err, &mut errors)
            );
        };
        tokio::pin!(listen);
        let mut heard = false;
        let status = loop {
            tokio::select! {
                ended = timeout_at(end, recording.0.wait()) => match ended {
                    Ok(status) => break status.context("wait for the recording")?.code(),
                    Err(_) => {
                        timed_out = true;
                        break recording.stop().await?;
                    }
                },
                () = &mut listen, if !heard => heard = true,
            }
        };
        if !heard {
            let _ = timeout_at(Instant::now() + LAST_WORDS, listen).await;
        }
        status
    };
    Ok(Ran {
        status,
        timed_out,
        output,
        errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_output_beginning_and_end_are_kept() {
        let mut kept = Kept::new(8);
        for n in 0..10 {
            kept.add(format!("{n}{n}").as_bytes());
        }
        assert_eq!(kept.text(), "0011\n... (12 bytes left out) ...\n8899");
        let mut little = Kept::new(8);
        little.add(b"ab");
        little.add(b"cdefgh");
        assert_eq!(little.text(), "abcdefgh");
        assert_eq!(Kept::new(8).value(), Value::Null);
    }
}
