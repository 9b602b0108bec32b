//! Replay never execs the program: a forked child maps the runtime, jumps into it, and becomes the recorded process.

use crate::confine::Confinement;
use crate::dispositions::AllBlocked;
use crate::error::{os, os_as, LaunchError, Result};
use crate::record::{pin_to, pipe};
use crate::runtime::RuntimeImage;
use crate::shared::{SharedSession, ORDER_MEMORY, ORDER_OFFSET, RING_OFFSET};
use crate::tracee::seize;
use libc::pid_t;
use reprise_abi::layout::*;
use reprise_abi::order::ORDER_BASE;
use reprise_abi::session::SESSION_TOTAL;
use reprise_abi::stage::{Stage, StageOp, STAGE_MAGIC};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{getrlimit, set_parent_process_death_signal, setrlimit, Resource, Signal};
use rustix::stdio::stderr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The plan by which the child builds its address space.
pub struct Plan {
    /// Steps, in order. `offset` of a copy is relative to the start of `bytes`.
    pub ops: Vec<StageOp>,
    /// The bytes that copies take.
    pub bytes: Vec<u8>,
    /// Descriptor of the trace's directory of files.
    pub files: RawFd,
}

impl Plan {
    /// Writes the plan into a memfd.
    fn seal(&self) -> Result<(OwnedFd, u64)> {
        use std::os::unix::fs::FileExt;
        let head = std::mem::size_of::<Stage>() + self.ops.len() * std::mem::size_of::<StageOp>();
        let len = (head + self.bytes.len()) as u64;
        if len > STAGE_MAX {
            return Err(LaunchError::Unsupported(format!(
                "the initial image needs {len} bytes, more than {STAGE_MAX}"
            )));
        }
        let stage = Stage {
            magic: STAGE_MAGIC,
            ops: self.ops.len() as u64,
            files: self.files as i64,
            len,
        };
        let mut out = Vec::with_capacity(head);
        for w in [stage.magic, stage.ops, stage.files as u64, stage.len] {
            out.extend_from_slice(&w.to_le_bytes());
        }
        for op in &self.ops {
            let offset = if op.kind == reprise_abi::stage::OP_COPY {
                op.offset + head as u64
            } else {
                op.offset
            };
            out.extend_from_slice(&op.kind.to_le_bytes());
            out.extend_from_slice(&op.prot.to_le_bytes());
            out.extend_from_slice(&op.flags.to_le_bytes());
            out.extend_from_slice(&op.fd.to_le_bytes());
            for w in [op.addr, op.len, offset] {
                out.extend_from_slice(&w.to_le_bytes());
            }
        }
        let fd = memfd_create(c"reprise-stage", MemfdFlags::CLOEXEC)
            .map_err(os_as("make memory for the image"))?;
        let file = std::fs::File::from(fd);
        let io = |source| LaunchError::Os {
            what: "write the image".into(),
            source,
        };
        file.write_all_at(&out, 0).map_err(io)?;
        file.write_all_at(&self.bytes, head as u64).map_err(io)?;
        Ok((file.into(), len))
    }
}

/// What becomes of the child.
#[derive(Clone, Copy, Debug, Default)]
pub struct Child {
    /// The one processor that it runs on.
    pub cpu: Option<usize>,
    /// Slot of its first thread.
    pub slot: usize,
    /// Its standard output and error, if not those of the driver.
    pub output: Option<[RawFd; 2]>,
    /// The calling thread traces it (ptrace(2)), with these options; so it does whatever the child makes.
    pub traced: Option<i32>,
}

/// The box that the child goes into before it runs anything of the trace.
pub struct Confined<'a> {
    /// What it may do there.
    pub confinement: &'a Confinement,
    /// To whom the kernel's questions about it go.
    pub socket: OwnedFd,
    /// Descriptors that it keeps beside those of the plan.
    pub keep: Vec<RawFd>,
}

impl Confined<'_> {
    /// All descriptors that stay open, ascending.
    fn keep(&self, plan: &Plan) -> Vec<RawFd> {
        let of_plan = plan.ops.iter().map(|op| op.fd).filter(|fd| *fd > 2);
        let mut all: Vec<RawFd> = of_plan.chain(self.keep.iter().copied()).collect();
        all.push(plan.files);
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Forks the child that becomes the recorded program.
///
/// # Errors
/// When memory or processes are short.
pub fn start(
    shared: &SharedSession,
    image: &RuntimeImage,
    plan: &Plan,
    child: Child,
    confined: Option<Confined<'_>>,
) -> Result<pid_t> {
    let (stage, len) = plan.seal()?;
    let (wait, go) = pipe()?;
    let keep = confined.as_ref().map_or(Vec::new(), |c| c.keep(plan));
    let filter = confined.as_ref().map(|c| c.confinement.filter(plan.files));
    // Of what is about to happen in the child, this takes a lock of the C library's.
    let registered = registered_sequences();
    // SAFETY: the child makes only system calls.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(os("fork"));
    }
    if pid > 0 {
        if let Some(options) = child.traced {
            seize(pid, options)?;
        }
        // The child goes on when the pipe is closed here.
        drop(go);
        tracing::debug!(
            pid,
            slot = child.slot,
            traced = child.traced.is_some(),
            confined = confined.is_some(),
            operations = plan.ops.len(),
            "process made"
        );
        return Ok(pid);
    }
    drop(go);
    // SAFETY: the child owns its copy of everything and never returns.
    unsafe {
        let _ = rustix::io::read(&wait, &mut [0u8; 1]);
        drop(wait);
        for (from, to) in child.output.iter().flatten().zip([1, 2]) {
            libc::dup2(*from, to);
        }
        let block = map_program(shared, image, (stage.as_raw_fd(), len), &child);
        if let Some((area, length)) = registered {
            libc::syscall(libc::SYS_rseq, area, length, UNREGISTER, SIGNATURE);
        }
        libc::syscall(libc::SYS_set_robust_list, 0, 24);
        if let (Some(c), Some(filter)) = (&confined, &filter) {
            c.confinement.enter(filter, c.socket.as_fd(), &keep);
        }
        std::arch::asm!("jmp {}", in(reg) image.start_replay, in("rdi") block, options(noreturn));
    }
}

/// Maps everything at its place; the address of the first thread's block.
unsafe fn map_program(
    shared: &SharedSession,
    image: &RuntimeImage,
    (stage, len): (RawFd, u64),
    child: &Child,
) -> u64 {
    // SAFETY: maps only at fixed addresses inside the reservation, which this program does not use.
    unsafe {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // The driver's own signal must find the runtime's handler.
        std::mem::forget(AllBlocked::here());
        let map = |at: u64, len: u64, prot: i32, flags: i32, fd: RawFd, offset: u64| {
            let p = libc::mmap(
                at as *mut _,
                len as usize,
                prot,
                flags | libc::MAP_FIXED_NOREPLACE,
                fd,
                offset as i64,
            );
            if p as u64 != at {
                let text = b"reprise: can't map the runtime for replay\n";
                let _ = rustix::io::write(stderr(), text);
                libc::_exit(125);
            }
        };
        for s in &image.segments {
            map(
                IMAGE_BASE + s.offset,
                s.len,
                s.prot,
                libc::MAP_PRIVATE,
                image.fd(),
                s.offset,
            );
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        map(
            SESSION_BASE,
            SESSION_TOTAL.next_multiple_of(4096) as u64,
            rw,
            libc::MAP_SHARED,
            shared.fd(),
            0,
        );
        for at in [RING_BASE, RING_BASE + RING_SIZE] {
            map(
                at,
                RING_SIZE,
                rw,
                libc::MAP_SHARED,
                shared.fd(),
                RING_OFFSET,
            );
        }
        if shared.order().is_some() {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            map(
                ORDER_BASE,
                ORDER_MEMORY,
                rw,
                flags,
                shared.fd(),
                ORDER_OFFSET,
            );
        }
        let block = BLOCKS_BASE + child.slot as u64 * BLOCK_STRIDE;
        map(
            block,
            BLOCK_STRIDE,
            rw,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        map(
            STAGE_BASE,
            len.next_multiple_of(PAGE),
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            stage,
            0,
        );
        let mut limit = getrlimit(Resource::Stack);
        let recorded = shared.session().stack_limit;
        limit.current = Some(recorded.min(limit.maximum.unwrap_or(u64::MAX)));
        let _ = setrlimit(Resource::Stack, limit);
        if let Some(cpu) = child.cpu {
            pin_to(0, cpu);
        }
        block
    }
}

const UNREGISTER: i32 = 1;
const SIGNATURE: u32 = 0x5305_3053;

/// The C library registered restartable sequences in memory that is about to go, and the kernel must forget it: where, and how many bytes.
fn registered_sequences() -> Option<(usize, u32)> {
    // SAFETY: glibc 2.35 and later export where they registered; other C libraries don't register.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) as *const isize;
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) as *const u32;
        if offset.is_null() || size.is_null() || *size == 0 {
            return None;
        }
        let thread: usize;
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread);
        Some((thread.wrapping_add_signed(*offset), 32))
    }
}
