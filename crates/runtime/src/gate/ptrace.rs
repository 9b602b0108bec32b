//! ptrace(2) between threads that share a memory, which is what LeakSanitizer does: a process with its parent's memory attaches to
//! its parent's threads, reads their registers and lets them go.
//!
//! No kernel is asked. While one thread of a session runs all others are at rest, so a thread is stopped by not handing
//! on, and its registers are those of its last gate: the same in record and replay. Everything else gets EPERM: a debugger
//! inside the session would fight with ours.

use crate::engine::Engine;
use crate::machine::guard;
use crate::memory::capture::Call;
use crate::thread::blocks;
use crate::thread::message::note;
use crate::thread::{block_address, session, slot, Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::notes;
use reprise_abi::session::slot_state;

const EPERM: i64 = -1;
const ESRCH: i64 = -3;
const EIO: i64 = -5;
const EFAULT: i64 = -14;

const CONT: u64 = 7;
const GETREGS: u64 = 12;
const ATTACH: u64 = 16;
const DETACH: u64 = 17;
const GETREGSET: u64 = 0x4204;
const NT_PRSTATUS: u64 = 1;

/// What a block keeps of this.
#[derive(Default)]
pub struct Traced {
    /// Slot plus 1 of the thread that attached to this one.
    by: u32,
    /// Its stop is still to be told by wait4(2).
    stops: bool,
    /// The thread was cut in the middle of code: its last gate says nothing of its stack.
    pub in_code: bool,
}

impl Block {
    /// What a block keeps of this.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn traced(&self) -> &mut Traced {
        // SAFETY: the area is this room's own; filled when the block was made.
        unsafe { self.traced.get::<Traced>() }
    }
}

/// Slot plus 1 of the thread that has attached to others, in this memory.
static TRACER: AtomicU32 = AtomicU32::new(0);

/// Does this thread hold others? Then it does not hand on by itself.
#[inline]
pub fn holds(t: &Block) -> bool {
    TRACER.load(Relaxed) == t.slot + 1
}

/// A new thread has this slot: what a former one held is free.
pub fn forget(slot: u32) {
    let _ = TRACER.compare_exchange(slot + 1, 0, Relaxed, Relaxed);
}

/// The block of the living thread with this id, if it is in this memory, and not the caller.
fn thread(t: &Block, tid: u64) -> Option<&'static mut Block> {
    let found = (0..session().slots_used.load(Relaxed)).find(|i| {
        let s = slot(*i);
        let there = !matches!(
            s.state.load(Relaxed),
            slot_state::FREE | slot_state::EXITING | slot_state::LEFT
        );
        *i != t.slot && there && s.visible_tid.load(Relaxed) as u64 == tid
    })?;
    blocks::in_use_here(found)?;
    // SAFETY: mapped, as `in_use_here` says; its thread is at rest.
    Some(unsafe { &mut *(block_address(found) as *mut Block) })
}

/// The call itself.
pub fn call<E: Engine>(t: &mut Block, c: &Call) -> i64 {
    let [request, tid, address, data, ..] = c.args;
    let me = t.slot + 1;
    // Without a baton others are not at rest.
    let other = if E::IMMEDIATE { None } else { thread(t, tid) };
    let free = TRACER.load(Relaxed) == 0;
    let r = match (request, other) {
        (ATTACH, Some(o)) if o.traced().by == 0 && (free || holds(t)) => {
            o.traced().by = me;
            o.traced().stops = true;
            TRACER.store(me, Relaxed);
            0
        }
        (DETACH | CONT | GETREGS | GETREGSET, Some(o)) if o.traced().by == me => match request {
            DETACH => {
                o.traced().by = 0;
                release(t);
                0
            }
            CONT => 0,
            GETREGS => registers(o, data, REGISTERS),
            _ if address == NT_PRSTATUS => register_set(o, data),
            _ => EIO,
        },
        (DETACH | CONT | GETREGS | GETREGSET, _) => ESRCH,
        _ => {
            note(notes::PTRACE);
            EPERM
        }
    };
    E::computed(t, c, r)
}

/// When no thread is held any more, the tracer hands on as others do.
fn release(t: &Block) {
    let held = (0..session().slots_used.load(Relaxed)).any(|i| {
        blocks::in_use_here(i).is_some_and(|_| {
            // SAFETY: mapped, as `in_use_here` says.
            unsafe { &*(block_address(i) as *const Block) }.traced().by == t.slot + 1
        })
    });
    if !held {
        TRACER.store(0, Relaxed);
    }
}

/// wait4(2) for a thread that this one has attached to: its stop. `None`: it is about something else.
pub fn wait<E: Engine>(t: &mut Block, c: &Call) -> Option<i64> {
    const STOPPED_BY_SIGSTOP: u32 = 19 << 8 | 0x7f;
    if !holds(t) {
        return None;
    }
    let tid = c.args[0] as u32 as u64;
    let o = thread(t, tid).filter(|o| o.traced().by == t.slot + 1 && o.traced().stops)?;
    o.traced().stops = false;
    let told = c.args[1] == 0 || guard::write(c.args[1], &STOPPED_BY_SIGSTOP);
    Some(E::computed(t, c, if told { tid as i64 } else { EFAULT }))
}

/// Bytes of `struct user_regs_struct`.
const REGISTERS: usize = 27 * 8;

fn registers(o: &Block, to: u64, len: usize) -> i64 {
    const CODE_SEGMENT: u64 = 0x33;
    const STACK_SEGMENT: u64 = 0x2b;
    // SAFETY: the frame of its gate lies at the top of its gate stack; all zero before the first one.
    let f = unsafe { *((o.gate_sp - core::mem::size_of::<Frame>() as u64) as *const Frame) };
    // An impossible stack pointer makes LeakSanitizer look at the whole stack.
    let sp = if o.traced().in_code { 0 } else { f.rsp };
    let words: [u64; 27] = [
        f.r15,
        f.r14,
        f.r13,
        f.r12,
        f.rbp,
        f.rbx,
        f.r11,
        f.r10,
        f.r9,
        f.r8,
        f.rax,
        f.rcx,
        f.rdx,
        f.rsi,
        f.rdi,
        u64::MAX,
        f.rip,
        CODE_SEGMENT,
        f.rflags,
        sp,
        STACK_SEGMENT,
        o.fs_base,
        0,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: plain words.
    let bytes =
        unsafe { core::slice::from_raw_parts(words.as_ptr() as *const u8, len.min(REGISTERS)) };
    if guard::write_bytes(to, bytes) {
        0
    } else {
        EFAULT
    }
}

fn register_set(o: &Block, iovec: u64) -> i64 {
    let Some([base, len]) = guard::read::<[u64; 2]>(iovec) else {
        return EFAULT;
    };
    let len = (len as usize).min(REGISTERS);
    match registers(o, base, len) {
        0 if guard::write(iovec + 8, &(len as u64)) => 0,
        0 => EFAULT,
        e => e,
    }
}
