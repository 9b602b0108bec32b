//! Execs inside a session: a thread is watched for the moment of its execve(2), and the runtime is put into what the process
//! becomes (FACTS, "Exec inside the tree").

use crate::error::{LaunchError, Result};
use crate::hand;
use crate::proc_files::{self, Stat};
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
    computed: u64,
}

impl Patience {
    /// So many, which takes some seconds. A thread that was watched makes its call at once: it has written over what tells it to.
    const MOST: u32 = 24;

    /// One more look: is it certain that the call never comes?
    fn is_over(&mut self, pid: pid_t, tid: pid_t) -> bool {
        /// The time that it has computed by itself (proc_pid_stat(5)).
        const UTIME: usize = 14;
        let stat = Stat::of_thread(pid, tid).ok();
        let call = proc_files::text(format!("/proc/{pid}/task/{tid}/syscall")).ok();
        let computed = stat.and_then(|stat| stat.field(UTIME));
        let computed = computed.unwrap_or(self.computed);
        let before = std::mem::replace(&mut self.computed, computed);
        let number = call
            .as_deref()
            .and_then(|line| line.split(' ').next()?.parse().ok());
        let does_other_things = match number {
            Some(number) => ![libc::SYS_execve, libc::SYS_execveat].contains(&number),
            // In its own code, or in the kernel. Who only waits for a processor may do anything.
            None => computed > before,
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
        match self.to_exec() {
            Ok(true) => {}
            Ok(false) => return Exec::Failed,
            Err(e) => return self.ended(e),
        }
        let mut stopped = match self.begin(shared) {
            Ok(s) => s,
            Err(e) => return self.ended(e),
        };
        match put_runtime_in(&mut stopped, shared, image) {
            Ok(()) => Exec::Became(Box::new(stopped)),
            Err(e) => self.ended(e),
        }
    }

    /// After an error the process is no more: somebody has killed it, or we do.
    fn ended(&self, why: LaunchError) -> Exec {
        let killed = match why {
            LaunchError::Died(_) => true,
            // By what it is.
            LaunchError::Unsupported(_) => false,
            _ => tracee::is_dying(self.pid),
        };
        let name = crate::proc_files::text(format!("/proc/{}/comm", self.pid));
        tracing::warn!(pid = self.pid, killed, why = ?why.to_string(), "ended at its exec");
        tracee::end(self.pid);
        match killed {
            true => Exec::Died,
            false => Exec::Lost(why, name.ok().map(|n| n.trim().into())),
        }
    }

    /// Runs to the exec event (true), or to the runtime's trap after a call that failed (false: it is let go).
    fn to_exec(&self) -> Result<bool> {
        let mut patience = Patience::default();
        loop {
            let is_in_vain = || patience.is_over(self.pid, self.tid);
            let Some((who, status)) = tracee::wait_any(&[self.pid, self.tid], is_in_vain)? else {
                let why = "it asked for that, and makes no such call";
                return Err(LaunchError::Unsupported(why.into()));
            };
            tracing::trace!(who, status = format_args!("{status:#x}"), "stop");
            if !libc::WIFSTOPPED(status) {
                // A thread that isn't the first one vanishes when its exec succeeds; when it is killed, nobody is left to be waited for.
                if who == self.pid {
                    return Err(LaunchError::Died(status));
                }
                continue;
            }
            let event = status >> 16;
            if event == libc::PTRACE_EVENT_EXEC {
                return Ok(true);
            }
            let signal = libc::WSTOPSIG(status);
            if event == 0 && signal == libc::SIGTRAP {
                if tracee::resume_living(who, libc::PTRACE_DETACH, 0)? {
                    return Ok(false);
                }
                continue;
            }
            let pass = if event == 0 { signal } else { 0 };
            tracee::resume_living(who, libc::PTRACE_CONT, pass)?;
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
