//! Programs' own seccomp filters (seccomp(2)): installed in the kernel, and judged here.
//!
//! The kernel would see the program's calls come from the runtime's text. So a filter is installed with a prefix that lets that
//! text through, and the runtime itself asks it about each call of the program before anything else is done with the
//! call; the verdict follows from the call alone, in record and in replay. What the kernel's copy is for: code that got
//! around the runtime would meet it. In replay there is none: nothing of the program reaches the kernel there.
//!
//! Strict mode is a filter of four calls whose verdict is SIGKILL.

pub mod bpf;

use crate::engine::Engine;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::scratch::Scratch;
use crate::signal::frame::{self, FpState};
use crate::signal::kernel;
use crate::thread::message::note;
use crate::thread::process;
use crate::thread::signals::{bit, Siginfo, ACTIONS, IGNORE, SIGKILL, SIGSEGV, SIGSYS};
use crate::thread::{session, slot, Block, Frame};
use bpf::{Data, Instruction};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::effect::Effect;
use reprise_abi::filters::{
    Filters, FILTERS_OFFSET, MAX_FILTERS, MAX_FILTER_LEN, MAX_INSTRUCTIONS,
};
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX, SESSION_BASE};
use reprise_abi::notes;
use reprise_abi::session::{region_flags, slot_state};
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::{self, nr};

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const ENOMEM: i64 = -12;
const ENOSYS: i64 = -38;

const RET_ACTION: u32 = 0xffff_0000;
const RET_KILL_THREAD: u32 = 0;
const RET_TRAP: u32 = 0x0003_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const RET_TRACE: u32 = 0x7ff0_0000;
const RET_LOG: u32 = 0x7ffc_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;
/// Largest errno that a filter can give; larger ones become it.
const MAX_ERRNO: u32 = 4095;

const FLAG_TSYNC: u64 = 1;
const FLAG_NEW_LISTENER: u64 = 8;
const MODE_STRICT: u64 = 1;
const MODE_FILTER: u64 = 2;
/// What strict mode lets through: read, write, rt_sigreturn, exit.
const STRICT_CALLS: [u64; 4] = [nr::READ, nr::WRITE, nr::RT_SIGRETURN, nr::EXIT];
/// What becomes of a call that was judged.
pub enum Verdict {
    /// It is made.
    Allowed,
    /// It is not made; its result.
    Answered(i64),
    /// It is not made; the program goes on in a handler.
    Trapped,
}

/// Lets the runtime's own text through; then A is 0 again, as a filter finds it.
const PREFIX: [Instruction; 6] = {
    const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }
    assert!(IMAGE_BASE as u32 == 0 && IMAGE_MAX <= u32::MAX as u64);
    [
        i(0x20, 0, 0, 12),
        i(0x15, 0, 3, (IMAGE_BASE >> 32) as u32),
        i(0x20, 0, 0, 8),
        i(0x35, 1, 0, IMAGE_MAX as u32),
        i(0x06, 0, 0, RET_ALLOW),
        i(0x00, 0, 0, 0),
    ]
};
/// Most instructions that a program's filter can have.
const LONGEST: usize = MAX_FILTER_LEN - PREFIX.len();
/// Strict mode for the kernel: ld nr, four times jeq, kill, allow.
const STRICT: [Instruction; 7] = {
    let mut code = [Instruction {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    }; 7];
    let mut n = 0;
    while n < STRICT_CALLS.len() {
        code[1 + n] = Instruction {
            code: 0x15,
            jt: (STRICT_CALLS.len() - n) as u8,
            jf: 0,
            k: STRICT_CALLS[n] as u32,
        };
        n += 1;
    }
    code[5] = Instruction {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: RET_KILL_PROCESS,
    };
    code[6] = Instruction {
        k: RET_ALLOW,
        ..code[5]
    };
    code
};

fn filters() -> &'static Filters {
    // SAFETY: part of the session's mapping; only atomics.
    unsafe { &*((SESSION_BASE as usize + FILTERS_OFFSET) as *const Filters) }
}

/// Has this thread a filter?
#[inline]
pub fn filtered(t: &Block) -> bool {
    t.slot().filter.load(Relaxed) != 0
}

/// The strictest action of all filters of the thread, the newest first; the second is true when it is strict mode's.
fn strictest(mut filter: u32, data: &Data) -> (u32, bool) {
    let all = filters();
    let mut worst = (RET_ALLOW, false);
    // A number is above its parent's; a damaged list ends it all the same.
    for _ in 0..MAX_FILTERS {
        let Some(f) = all.list.get((filter as usize).wrapping_sub(1)) else {
            break;
        };
        let strict = f.strict.load(Relaxed) != 0;
        let (start, len) = (f.start.load(Relaxed) as usize, f.len.load(Relaxed) as usize);
        let verdict = if strict {
            match STRICT_CALLS.contains(&(data.nr as u64)) {
                true => RET_ALLOW,
                false => RET_KILL_THREAD,
            }
        } else {
            let instruction = |i: usize| {
                let word = all.code.get(start + i).map_or(0, |w| w.load(Relaxed));
                Instruction::from_word(word)
            };
            bpf::run(len, instruction, data).unwrap_or(RET_KILL_PROCESS)
        };
        if ((verdict & RET_ACTION) as i32) < ((worst.0 & RET_ACTION) as i32) {
            worst = (verdict, strict);
        }
        filter = f.parent.load(Relaxed);
    }
    worst
}

/// Asks the thread's filters about the call in `frame`, and does what they say.
#[cold]
pub fn judge<E: Engine>(t: &mut Block, frame: &mut Frame) -> Verdict {
    let number = frame.rax as u32 as u64;
    let args = frame.args();
    let data = Data {
        nr: number as u32,
        arch: AUDIT_ARCH_X86_64,
        pc: frame.rip,
        args,
    };
    let ours = |pc| memory::map().at(pc).map_or(0, |r| r.flags) & region_flags::VDSO != 0;
    // Our vDSO has these as calls and the kernel's has not: no filter is asked about them.
    let in_vdso = syscalls::lookup(number).is_some_and(|call| call.vdso);
    if in_vdso && ours(frame.rip) {
        return Verdict::Allowed;
    }
    let (verdict, strict) = strictest(t.slot().filter.load(Relaxed) as u32, &data);
    let c = Call::new(number, args, syscalls::lookup(number));
    let low = verdict & !RET_ACTION;
    match verdict & RET_ACTION {
        RET_ALLOW | RET_LOG => Verdict::Allowed,
        RET_ERRNO => Verdict::Answered(E::computed(t, &c, -(low.min(MAX_ERRNO) as i64))),
        // Nobody traces, nobody listens.
        RET_TRACE | RET_USER_NOTIF => Verdict::Answered(E::computed(t, &c, ENOSYS)),
        RET_TRAP => {
            // The handler finds the registers as they were before the call: its number is where its result would be.
            E::computed(t, &c, frame.rax as i64);
            trap::<E>(t, frame, &data, low);
            Verdict::Trapped
        }
        RET_KILL_THREAD if process::entry().live_threads.load(Relaxed) > 1 => {
            E::computed(t, &c, ENOSYS);
            let signal = if strict { SIGKILL } else { SIGSYS };
            let exit = nr::EXIT;
            let args = [signal as u64, 0, 0, 0, 0, 0];
            let exit = Call::new(exit, args, syscalls::lookup(exit));
            E::thread_exit(t, &exit, frame)
        }
        _ => {
            E::computed(t, &c, ENOSYS);
            die::<E>(t, if strict { SIGKILL } else { SIGSYS })
        }
    }
}

/// Sends the program the SIGSYS by which it learns of the call that was not made.
fn trap<E: Engine>(t: &mut Block, frame: &mut Frame, data: &Data, errno: u32) {
    const SYS_SECCOMP: u64 = 1;
    let mut info = Siginfo::ZERO;
    info.words[0] = SIGSYS as u64 | (errno as u64) << 32;
    info.words[1] = SYS_SECCOMP;
    info.words[2] = data.pc;
    info.words[3] = data.nr as u64 | (data.arch as u64) << 32;
    frame.rcx = frame.rip;
    frame.r11 = frame.rflags;
    let action = ACTIONS.get(SIGSYS);
    // It is forced: who blocks or ignores it dies of it.
    if action.handler <= IGNORE || t.mask & bit(SIGSYS) != 0 {
        die::<E>(t, SIGSYS);
    }
    if E::LIVE {
        kernel::block_all();
    }
    if !frame::deliver(t, frame, FpState::Live, &info, &action, [0; 3]) {
        die::<E>(t, SIGSEGV);
    }
    if E::LIVE {
        kernel::sync_mask(t);
    }
}

/// Ends the process by a signal, really, in replay as well: same status, same core file.
fn die<E: Engine>(t: &mut Block, signal: u32) -> ! {
    E::process_dies(t, signal);
    kernel::default_action(signal);
    loop {
        kernel::send_self(signal);
    }
}

/// prctl(PR_SET_SECCOMP) and the two modes of seccomp(2).
pub fn install<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let a = c.args;
    let (mode, flags) = match c.effect {
        Effect::Options => (a[1], 0),
        // SECCOMP_SET_MODE_STRICT is 0, _FILTER is 1.
        _ => (a[0] as u32 as u64 + 1, a[1] as u32 as u64),
    };
    match mode {
        MODE_STRICT => {
            let odd = c.effect == Effect::Filters && (a[1] != 0 || a[2] != 0);
            if odd || filtered(t) {
                return E::computed(t, c, EINVAL);
            }
            strict::<E>(t, c, frame)
        }
        MODE_FILTER if flags & FLAG_NEW_LISTENER != 0 => {
            note(notes::SECCOMP_LISTENER);
            E::computed(t, c, EINVAL)
        }
        MODE_FILTER => filter::<E>(t, c, frame, flags),
        _ => E::computed(t, c, EINVAL),
    }
}

fn strict<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    if !has_room(0) {
        note(notes::SECCOMP_FULL);
        return E::computed(t, c, ENOMEM);
    }
    if E::LIVE {
        // A filter needs it, strict mode does not; nobody who is in strict mode can see it.
        sys::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    let code = |i: usize| STRICT[i];
    let r = to_kernel::<E>(t, c, frame, STRICT.len(), code, 0);
    if r == 0 {
        let number = add(0, 0, |_| 0, true);
        t.slot().filter.store(number as u64, Relaxed);
    }
    r
}

fn filter<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame, flags: u64) -> i64 {
    let Some([len, at]) = guard::read::<[u64; 2]>(c.args[2]) else {
        return E::computed(t, c, EFAULT);
    };
    let len = len as u16 as usize;
    if len == 0 || len > MAX_FILTER_LEN {
        return E::computed(t, c, EINVAL);
    }
    if len > LONGEST {
        note(notes::SECCOMP_LONG);
        return E::computed(t, c, EINVAL);
    }
    if !has_room(len) {
        note(notes::SECCOMP_FULL);
        return E::computed(t, c, ENOMEM);
    }
    // Read once: what is judged by is what was installed.
    let mut scratch = Scratch::new(t, len * 8);
    let copy = match scratch.copy_in(at, len * 8) {
        Ok(copy) => copy,
        Err(e) => return E::computed(t, c, e),
    };
    if E::LIVE && flags & FLAG_TSYNC != 0 {
        wait_for_leavers::<E>();
    }
    // SAFETY: `len` words of scratch memory were just filled.
    let words = unsafe { core::slice::from_raw_parts(copy as *const u64, len) };
    let r = to_kernel::<E>(
        t,
        c,
        frame,
        len,
        |i| Instruction::from_word(words[i]),
        flags,
    );
    if r == 0 {
        let number = add(
            t.slot().filter.load(Relaxed) as u32,
            len,
            |i| words[i],
            false,
        );
        t.slot().filter.store(number as u64, Relaxed);
        if flags & FLAG_TSYNC != 0 {
            synchronise(t, number);
        }
    }
    r
}

/// Makes the program's call with `code`, prefixed, instead of its own filter. Replay takes the result from the trace.
fn to_kernel<E: Engine>(
    t: &mut Block,
    c: &mut Call,
    frame: &Frame,
    len: usize,
    code: impl Fn(usize) -> Instruction,
    flags: u64,
) -> i64 {
    let mut all = [0u64; MAX_FILTER_LEN];
    for (to, from) in all
        .iter_mut()
        .zip(PREFIX.into_iter().chain((0..len).map(code)))
    {
        *to = from.to_word();
    }
    let program = [(PREFIX.len() + len) as u64, all.as_ptr() as u64];
    c.local = match c.effect {
        Effect::Options => [c.args[0], MODE_FILTER, program.as_ptr() as u64, 0, 0, 0],
        _ => [1, flags, program.as_ptr() as u64, 0, 0, 0],
    };
    // It does not wait, and is made with these arguments as they are.
    c.blocking = Blocking::Never;
    E::syscall(t, c, frame)
}

fn has_room(len: usize) -> bool {
    let all = filters();
    (all.used.load(Relaxed) as usize) < MAX_FILTERS
        && all.code_used.load(Relaxed) as usize + len <= MAX_INSTRUCTIONS
}

/// Adds a filter on top of `parent`, unless there is the same one already; its number.
fn add(parent: u32, len: usize, word: impl Fn(usize) -> u64, strict: bool) -> u32 {
    let all = filters();
    let _alone = crate::thread::schedule::lock();
    let used = (all.used.load(Relaxed) as usize).min(MAX_FILTERS - 1);
    let same = all.list[..used].iter().position(|f| {
        let start = f.start.load(Relaxed) as usize;
        f.parent.load(Relaxed) == parent
            && f.len.load(Relaxed) as usize == len
            && (f.strict.load(Relaxed) != 0) == strict
            && (0..len).all(|i| {
                let there = all.code.get(start + i);
                there.is_some_and(|w| w.load(Relaxed) == word(i))
            })
    });
    if let Some(i) = same {
        return i as u32 + 1;
    }
    let start = (all.code_used.load(Relaxed) as usize).min(MAX_INSTRUCTIONS - len);
    for i in 0..len {
        all.code[start + i].store(word(i), Relaxed);
    }
    let f = &all.list[used];
    f.parent.store(parent, Relaxed);
    f.start.store(start as u32, Relaxed);
    f.len.store(len as u32, Relaxed);
    f.strict.store(strict as u32, Relaxed);
    all.code_used.store((start + len) as u32, Relaxed);
    all.used.store(used as u32 + 1, Relaxed);
    used as u32 + 1
}

/// A thread that was joined may still be on its way out of the kernel, with a filter of its own that TSYNC would stumble over. By itself
/// the program is told of a thread's end when that counts no more.
fn wait_for_leavers<E: Engine>() {
    for i in 0..session().slots_used.load(Relaxed) {
        if slot(i).state.load(Relaxed) == slot_state::EXITING {
            crate::gate::clone::wait_for_slot::<E>(i);
        }
    }
}

/// The kernel gave the filter to all threads of the process.
fn synchronise(t: &Block, number: u32) {
    let process = t.slot().process.load(Relaxed);
    for i in 0..session().slots_used.load(Relaxed) {
        let s = slot(i);
        let there = !matches!(
            s.state.load(Relaxed),
            slot_state::FREE | slot_state::EXITING
        );
        if there && s.process.load(Relaxed) == process {
            s.filter.store(number as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(tail: &[Instruction], data: &Data) -> Option<u32> {
        bpf::run(
            PREFIX.len() + tail.len(),
            |i| {
                PREFIX
                    .get(i)
                    .copied()
                    .unwrap_or_else(|| tail[i - PREFIX.len()])
            },
            data,
        )
    }

    #[test]
    fn the_prefix_lets_the_runtime_through_and_nothing_else() {
        // ret A: what the program's filter finds in A.
        let tail = [Instruction {
            code: 0x16,
            jt: 0,
            jf: 0,
            k: 0,
        }];
        let at = |pc| Data {
            pc,
            ..Data::default()
        };
        for pc in [IMAGE_BASE, IMAGE_BASE + 2, IMAGE_BASE + IMAGE_MAX - 1] {
            assert_eq!(prefixed(&tail, &at(pc)), Some(RET_ALLOW));
        }
        for pc in [
            0,
            IMAGE_BASE - 1,
            IMAGE_BASE + IMAGE_MAX,
            0x40_1000,
            u64::MAX,
        ] {
            assert_eq!(prefixed(&tail, &at(pc)), Some(0));
        }
    }

    #[test]
    fn strict_mode_has_four_calls() {
        for number in 0..400 {
            let data = Data {
                nr: number,
                ..Data::default()
            };
            let wanted = match STRICT_CALLS.contains(&(number as u64)) {
                true => RET_ALLOW,
                false => RET_KILL_PROCESS,
            };
            assert_eq!(prefixed(&STRICT, &data), Some(wanted), "call {number}");
        }
    }
}
