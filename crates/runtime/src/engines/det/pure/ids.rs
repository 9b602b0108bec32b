//! Ids of processes and threads under `--pure`: numbered as they are made, from numbers on that no kernel gives (they end at 2^22), so that an id that comes along
//! says by itself whose it is. Whoever the program meets and has not made is numbered, too, as it is met.
//!
//! The numbers of all processes come from one count. Processes that make others at the same time have no order (`det` gives them none): then who
//! gets which number is not the program's to say.

use crate::engine::wish::Wish;
use crate::gate::clone;
use crate::machine::guard;
use crate::machine::sys;
use crate::thread::process;
use crate::thread::signals::Siginfo;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::det::{FamiliarIds, FIRST_ID, FIRST_OUTSIDER, MAX_IDS};

/// An id that nobody has.
const NOBODY: u32 = 0x3fff_ffff;

fn all() -> &'static FamiliarIds {
    &session().det_ids
}

/// The next id.
pub fn new_id() -> u32 {
    FIRST_ID + all().made.fetch_add(1, SeqCst)
}

/// Indices of what is known, the latest first.
fn known() -> impl Iterator<Item = usize> {
    let len = all().len.load(SeqCst) as usize;
    (len.saturating_sub(MAX_IDS)..len)
        .rev()
        .map(|n| n % MAX_IDS)
}

fn find(visible: u32) -> Option<usize> {
    known().find(|n| all().visible[*n].load(Relaxed) == visible)
}

/// The kernel's id of whom the program knows by `visible`.
pub fn learn(visible: u32, kernel: u32) {
    if let Some(n) = find(visible) {
        return all().kernel[n].store(kernel, SeqCst);
    }
    let n = all().len.fetch_add(1, SeqCst) as usize % MAX_IDS;
    all().time[n].store(0, Relaxed);
    all().kernel[n].store(kernel, Relaxed);
    all().visible[n].store(visible, SeqCst);
}

/// Is this an id of ours?
pub fn is_ours(id: u32) -> bool {
    (FIRST_ID..NOBODY).contains(&id)
}

/// The kernel's id for one that the program gives.
pub fn kernel(visible: u32) -> u32 {
    match find(visible) {
        Some(n) => all().kernel[n].load(SeqCst),
        // 0 is the caller, 1 is there always; others are ids that the program can't know.
        None if visible <= 1 => visible,
        None => NOBODY,
    }
}

/// As [`kernel`], for an argument that names a group when it is negative.
pub fn kernel_signed(visible: i32) -> i32 {
    match visible {
        -1 | 0 => visible,
        v if v < 0 => -(kernel(v.unsigned_abs()) as i32),
        v => kernel(v as u32) as i32,
    }
}

/// The id that the program sees of whom the kernel knows by `kernel`.
pub fn visible(kernel: u32) -> u32 {
    if kernel <= 1 || is_ours(kernel) {
        return kernel;
    }
    if let Some(n) = known().find(|n| all().kernel[*n].load(Relaxed) == kernel) {
        return all().visible[n].load(SeqCst);
    }
    let id = FIRST_OUTSIDER + all().outsiders.fetch_add(1, SeqCst);
    learn(id, kernel);
    id
}

/// How late it was for a process when it ended, or became another program.
pub fn time_of(visible: u32) -> u64 {
    find(visible).map_or(0, |n| all().time[n].load(SeqCst))
}

/// Says so.
pub fn put_time(visible: u32, time: u64) {
    if let Some(n) = find(visible) {
        all().time[n].store(time, SeqCst);
    }
}

/// Id and time with which the process begins that is being made.
static CHILD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes a process: by its id the program knows it. Nobody else makes one in this memory meanwhile.
pub fn of_child(t: &mut Block, wish: &Wish, make: impl FnOnce(&mut Block) -> i64) -> i64 {
    if !super::on() {
        return make(t);
    }
    let id = new_id();
    CHILD[0].store(id.into(), SeqCst);
    CHILD[1].store(t.det().pure.clock.now(), SeqCst);
    let pid = make(t);
    if sys::is_error(pid) {
        return pid;
    }
    learn(id, pid as u32);
    if !wish.makes_pidfd() {
        clone::publish_tid(wish, id);
    }
    id.into()
}

/// First thing a new process does. `told`: where it puts its id.
pub fn child_starts(t: &mut Block, told: u64) {
    let [id, time] = CHILD.each_ref().map(|w| w.load(SeqCst));
    let id = id as u32;
    learn(id, t.kernel_tid);
    t.det().pure.clock.set(time);
    t.slot().visible_tid.store(id, Relaxed);
    process::entry().visible_pid.store(id, Relaxed);
    if told != 0 {
        guard::write(told, &id);
    }
}

/// A thread is about to be made, on this block, by one whose time is `now`; `None`: the kernel's id is its id.
pub fn of_thread(now: u64, block: &mut Block) -> Option<u32> {
    if !super::on() {
        return None;
    }
    let id = new_id();
    block.det().pure.clock.set(now);
    block.slot().visible_tid.store(id, Relaxed);
    Some(id)
}

/// A signal as the program is told of it: who sent it.
pub fn in_signal(info: &mut Siginfo) {
    const SIGCHLD: u32 = 17;
    // Sent by somebody: SI_USER and below.
    if info.code() <= 0 || info.signal() == SIGCHLD {
        // si_pid is the first word of the union.
        let sender = visible(info.words[2] as u32);
        info.words[2] = info.words[2] & !0xffff_ffff | u64::from(sender);
    }
}
