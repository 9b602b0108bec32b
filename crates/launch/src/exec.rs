//! Execs inside a session: a thread is watched for the moment of its execve(2), and the runtime is put into what the process
//! becomes (FACTS, "Exec inside the tree").

use crate::doings::Doings;
use crate::error::{LaunchError, Result};
use crate::hand;
use crate::proc_files::{self, Whereabouts};
use crate::reach::Reach;
use crate::record::Stopped;
use crate::runtime::RuntimeImage;
use crate::shared::SharedSession;
use crate::tracee;
use libc::pid_t;
use std::os::fd::AsFd;

/// How an exec inside the session went.
pub enum Exec {
    /// The process is another program, stopped before its first instruction, with the runtime in it.
    Became(Box<Stopped>),
    /// The call failed; the program goes on.
    Failed,
    /// The process died meanwhile.
    Died,
    /// It became something of this name into which the runtime can't be put, and was ended.
    Lost(LaunchError, Option<String>),
}

/// How a process ends that was watched at its exec.
enum End {
    /// It died, or somebody has killed it: nothing is wrong with what it became.
    Killed(LaunchError),
    /// It lives, and can't go on like this: we end it. With its name, which nobody can ask for once its parent has heard of its end.
    Refused(LaunchError, Option<String>),
}

impl End {
    /// Of what a step said with a process that we had stopped.
    fn of_stopped(pid: pid_t, why: LaunchError) -> End {
        match why {
            LaunchError::Died(_) => End::Killed(why),
            // By what it is, whatever becomes of it meanwhile.
            LaunchError::Unsupported(_) => End::refused(pid, why),
            // The kernel knows no tracee that has been killed.
            _ if tracee::is_dying(pid) => End::Killed(why),
            _ => End::refused(pid, why),
        }
    }

    fn refused(pid: pid_t, why: LaunchError) -> End {
        End::Refused(why, proc_files::name_of(pid).ok())
    }
}

/// A thread of the session that is about to exec, watched.
pub struct Watched {
    pid: pid_t,
    tid: pid_t,
    slot: usize,
}

/// Looks at a thread that does something else than to become another program.
#[derive(Default)]
struct Patience {
    looks: u32,
    doings: Doings,
}

impl Patience {
    /// So many, which takes some seconds. A thread that was watched makes its call at once: it has written over what tells it to.
    const MOST: u32 = 24;

    /// One more look: is it certain that the call never comes?
    fn is_over(&mut self, pid: pid_t, tid: pid_t) -> bool {
        let place = Whereabouts::of_thread(pid, tid).ok().flatten();
        self.doings.look([(pid as u32, tid as u32)]);
        let does_other_things = match place {
            Some(Whereabouts::InCall { number, .. }) => {
                ![libc::SYS_execve, libc::SYS_execveat].contains(&(number as i64))
            }
            Some(Whereabouts::Outside { .. }) => true,
            // In its own code, or in the kernel. Who only waits for a processor may do anything.
            Some(Whereabouts::Runs) | None => self.doings.has_run_itself(tid as u32),
        };
        self.looks += u32::from(does_other_things);
        self.looks >= Patience::MOST
    }
}

/// How a thread is watched. What it became would run without the runtime if the tracer died meanwhile: it is ended then.
const WATCHED: i32 =
    libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
/// Filters wait until the tracer detaches; for administrators only (ptrace(2)).
const PTRACE_O_SUSPEND_SECCOMP: i32 = 1 << 21;

/// Begins to watch thread `tid` of process `pid`, whose slot is `slot`.
///
/// # Errors
/// When ptrace is refused.
pub fn watch(pid: pid_t, tid: pid_t, slot: usize) -> Result<Watched> {
    let options = WATCHED;
    tracee::seize(tid, options)?;
    tracing::debug!(pid, tid, slot, "watches a thread that is about to exec");
    Ok(Watched { pid, tid, slot })
}

impl Watched {
    /// Follows the thread through its execve(2).
    pub fn follow(self, shared: &mut SharedSession, image: &RuntimeImage) -> Exec {
        match self.take_over(shared, image) {
            Ok(Some(stopped)) => Exec::Became(Box::new(stopped)),
            Ok(None) => Exec::Failed,
            Err(end) => self.ended(end),
        }
    }

    /// `None`: the call failed.
    fn take_over(
        &self,
        shared: &mut SharedSession,
        image: &RuntimeImage,
    ) -> std::result::Result<Option<Stopped>, End> {
        if !self.to_exec()? {
            return Ok(None);
        }
        // It is stopped from here on, and goes on by our doing only.
        let of = |why| End::of_stopped(self.pid, why);
        let mut stopped = self.begin(shared).map_err(of)?;
        put_runtime_in(&mut stopped, shared, image).map_err(of)?;
        Ok(Some(stopped))
    }

    /// The process is no more: somebody has killed it, or we do.
    fn ended(&self, end: End) -> Exec {
        let (killed, why) = match &end {
            End::Killed(why) => (true, why),
            End::Refused(why, _) => (false, why),
        };
        tracing::warn!(pid = self.pid, killed, why = ?why.to_string(), "ended at its exec");
        tracee::end(self.pid);
        match end {
            End::Killed(_) => Exec::Died,
            End::Refused(why, name) => Exec::Lost(why, name),
        }
    }

    /// Runs to the exec event (true), or to the runtime's trap after a call that failed (false: it is let go).
    fn to_exec(&self) -> std::result::Result<bool, End> {
        let of = |why| End::of_stopped(self.pid, why);
        let mut patience = Patience::default();
        loop {
            let is_in_vain = || patience.is_over(self.pid, self.tid);
            let Some((who, status)) =
                tracee::wait_any(&[self.pid, self.tid], is_in_vain).map_err(of)?
            else {
                let why = "it asked for that, and makes no such call";
                return Err(of(LaunchError::Unsupported(why.into())));
            };
            tracing::trace!(who, status = format_args!("{status:#x}"), "stop");
            if !libc::WIFSTOPPED(status) {
                // A thread that isn't the first one vanishes when its exec succeeds; when it is killed, nobody is left to be waited for.
                if who == self.pid {
                    return Err(End::Killed(LaunchError::Died(status)));
                }
                continue;
            }
            let event = status >> 16;
            if event == libc::PTRACE_EVENT_EXEC {
                return Ok(true);
            }
            let signal = libc::WSTOPSIG(status);
            if event == 0 && signal == libc::SIGTRAP {
                if tracee::resume_living(who, libc::PTRACE_DETACH, 0).map_err(of)? {
                    return Ok(false);
                }
                continue;
            }
            let pass = if event == 0 { signal } else { 0 };
            tracee::resume_living(who, libc::PTRACE_CONT, pass).map_err(of)?;
        }
    }

    /// Takes over what the process became.
    fn begin(&self, shared: &SharedSession) -> Result<Stopped> {
        // The program's own seccomp filter lets only the runtime's text through, which isn't there yet. Without privileges
        // it can't be told to wait: the calls that bring the runtime in are then judged like the program's.
        let _ = tracee::set_options(self.pid, WATCHED | PTRACE_O_SUSPEND_SECCOMP);
        let stopped = Stopped::begin(self.pid, self.slot)?;
        crate::identity::note_loss(self.pid, shared);
        Ok(stopped)
    }
}

fn put_runtime_in(
    stopped: &mut Stopped,
    shared: &mut SharedSession,
    image: &RuntimeImage,
) -> Result<()> {
    wants_64_bits(&stopped.entry)?;
    let ours = [image.fd(), shared.fd()];
    // By path where that works: processes of another user, and those without /proc, are handed them.
    let reached = stopped.put_in(shared, image, Reach::Opens(ours))?;
    if reached.is_none() {
        tracing::debug!(pid = stopped.pid, "is handed the descriptors");
        let fds = hand::over(stopped, [image.as_fd(), shared.as_fd()])?;
        stopped.put_in(shared, image, Reach::Has(fds))?;
    }
    Ok(())
}

/// Refuses what runs with these registers when that is no 64-bit code.
pub(crate) fn wants_64_bits(r: &libc::user_regs_struct) -> Result<()> {
    /// Code segment of 64-bit programs.
    const CS_64: u64 = 0x33;
    match r.cs {
        CS_64 => Ok(()),
        _ => Err(LaunchError::Unsupported(
            "it is a 32-bit program; only x86-64 programs can be recorded".into(),
        )),
    }
}

/// Below the stack pointer of a new program nothing is in use.
pub(crate) const BELOW_STACK: u64 = 1024;
