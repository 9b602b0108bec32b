//! Execs inside the session: the runtime is put into what a process becomes, before its first instruction.

use crate::asked::Asked;
use crate::members::Members;
use crate::processes;
use crate::requests::done;
use reprise_abi::engine::can;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{Session, MAX_PROCESSES};
use reprise_launch::exec::{watch, Exec};
use reprise_launch::proc_files::name_of;
use reprise_launch::record::Stopped;
use reprise_launch::{futex, orderable, LaunchError, RuntimeImage, SharedSession};
use reprise_trace::Uncaptured;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;

/// What is to be kept of a program that begins in this slot: its image, under this number.
pub type Keep<'a> = dyn FnMut(&Stopped, &mut SharedSession, u64, usize) -> Result<(), String> + 'a;

/// Serves the open request for an exec, if there is one; the process, when it had to be ended.
pub fn serve(
    shared: &mut SharedSession,
    members: &Members,
    image: &RuntimeImage,
    keep: &mut Keep,
    warnings: &mut Vec<String>,
) -> Option<Uncaptured> {
    let q = &shared.session().request;
    let Some(Asked::Exec { who, slot }) = Asked::open(shared) else {
        return None;
    };
    let asks = who.filter(|(pid, tid)| members.asks(shared, *pid, *tid));
    let Some(((pid, tid), slot)) = asks.zip(slot) else {
        let why = "a request to follow an exec named a thread that had not asked for it: the program has damaged the session's memory";
        if !warnings.iter().any(|w| w == why) {
            warnings.push(why.into());
        }
        q.status.store(libc::EPERM as u32, Relaxed);
        done(shared);
        return None;
    };
    // Tracer and program on one processor: a stop costs twenty times less there.
    let _here = Beside::process(pid as i32);
    let watched = watch(pid as i32, tid as i32, slot);
    let status = match &watched {
        Ok(_) => 0,
        Err(e) => {
            warnings.push(format!("process {pid} could not exec: {e}"));
            libc::EPERM as u32
        }
    };
    q.status.store(status, Relaxed);
    done(shared);
    let watched = watched.ok()?;
    // As the recorded processes know it.
    let visible = visible_pid(shared, slot);
    let ended = |name| {
        let why = "it was ended at its exec, which can't be recorded".into();
        Some(Uncaptured {
            pid: visible,
            name,
            why,
        })
    };
    match watched.follow(shared, image) {
        Exec::Became(mut stopped) => {
            processes::became_another(shared.session(), slot as u32);
            warnings.extend(unfit(shared.session(), pid).filter(|w| !warnings.contains(w)));
            let n = u64::from(shared.session().images.fetch_add(1, Relaxed)) + 1;
            tracing::debug!(pid, tid, slot, image = n, "became another program");
            if let Err(why) = keep(&stopped, shared, n, slot) {
                warnings.push(format!(
                    "the program that process {pid} became could not be kept: {why}"
                ));
            }
            match stopped.go(image) {
                Ok(_) => {}
                Err(LaunchError::Died(_)) => free_head(shared),
                Err(e) => {
                    warnings.push(format!("process {visible} was lost at its exec: {e}"));
                    free_head(shared);
                    // Before it is ended, after which nobody can ask for it.
                    return ended(name_of(pid).ok());
                }
            }
        }
        Exec::Failed => tracing::debug!(pid, tid, slot, "its exec failed"),
        Exec::Died => {
            tracing::debug!(pid, tid, slot, "died in its exec");
            free_head(shared);
        }
        Exec::Lost(e, name) => {
            warnings.push(format!(
                "process {visible} was ended at its exec, which can't be recorded: {e}"
            ));
            free_head(shared);
            return ended(name);
        }
    }
    None
}

/// What is to be said of the program that process `pid` has become, where threads are ordered by what libc's functions do: the first one would
/// have been refused.
fn unfit(s: &Session, pid: u32) -> Option<String> {
    if !s.engine().can(can::ORDER_SYNCHRONISATION) {
        return None;
    }
    let image = PathBuf::from(format!("/proc/{pid}/exe"));
    let why = orderable::unfit(&image)?;
    let name = std::fs::read_link(&image).unwrap_or(image);
    Some(format!(
        "{} was recorded, but its replay may diverge with --engine order: {why} (--engine serial orders all)",
        name.display()
    ))
}

/// The id that the process of a slot has in the recording.
fn visible_pid(shared: &SharedSession, slot: usize) -> i64 {
    let s = shared.session();
    let slot = shared.slot(slot.min(MAX_SLOTS - 1));
    let process = slot.process.load(Relaxed) as usize;
    s.processes[process.min(MAX_PROCESSES - 1)]
        .visible_pid
        .load(Relaxed)
        .into()
}

/// The agent runs where a process does, until this is dropped.
struct Beside(CpuSet);

impl Beside {
    fn process(pid: i32) -> Option<Beside> {
        let mine = sched_getaffinity(None).ok()?;
        let its = sched_getaffinity(Pid::from_raw(pid)).ok()?;
        sched_setaffinity(None, &its).ok()?;
        Some(Beside(mine))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// A process died in its exec: the next one may use the session's head.
fn free_head(shared: &SharedSession) {
    let word = &shared.session().starting;
    word.store(0, Release);
    futex::wake(word, i32::MAX);
}
