//! The short ways of `pthread_mutex_lock` and `_unlock`, which most calls take: a plain mutex that is free, and that the same thread had last,
//! is taken without leaving the program's stack. All else goes on in the shims.
//!
//! They make a **quiet** operation ([`crate::engines::order`]): the run of the mutex goes on by one, and [`Slot::quiet_left`](reprise_abi::session::Slot)
//! goes down. When it is 0 the shims are asked, so that an engine decides how many operations it lets pass. In a replay those who wait for
//! their turn are called when the mutex is given back: they could not have it earlier.
//!
//! What is here is never run: each function has a copy of its way in the room for stubs near it. Jumps to the runtime, which is far away, and
//! back, cost as much as half of a pair of lock and unlock. Behind a copy's code stand the addresses that it needs. As long as a thread is
//! in a copy it counts as being in the runtime; rax, rcx, rdx and r8, which a function may change, are all that differs from the
//! registers that the program called with, so that a fault can be shown at the function's entry ([`super::shim::fault`]).

use super::shim::{self, Function};
use crate::code::patch;
use crate::log::awaited;
use crate::machine::guard;
use crate::thread::in_force;
use crate::thread::QUIET_BEHIND_PENDING;
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::order::WaitingRoom;

global_asm!(
    r#"
    // A label that the runtime's other code can name.
    .macro PLACE name
    .hidden \name
    .globl \name
\name:
    .endm

    // The end of a way: what a function leaves behind in registers is always the same.
    .macro OUT
    xor r8d, r8d
    xor r10d, r10d
    xor r11d, r11d
    xor edx, edx
    xor ecx, ecx
    xor eax, eax
    .endm

    // To a shim, which wants the entry in rax.
    .macro ASK table, number
    mov rax, [rip + \table]
    jmp [rip + \table + 8 * \number]
    .endm

    // To the shim that does all of it: nothing was done yet. A handler that runs while it waits goes back to these registers, which are to be
    // the same however far this way and a replay's came.
    .macro ASK_ALL table
    xor r8d, r8d
    xor edx, edx
    xor ecx, ecx
    ASK \table, 1
    .endm

    // The mutex is taken: counted if the thread had it last, which is asked for after the lock, since another thread may have had it meanwhile.
    .macro LOCKED way
    test r8d, r8d
    jz 1f
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    jne 1f
    cmp word ptr [rdi + 24], cx
    jne 2f
    mov rcx, gs:[48]
    add qword ptr [rdi + 24], 0x10000
    dec dword ptr [rcx + {quiet}]
    // Its unlock is counted with it.
    add qword ptr gs:[56], 2
    mov [rdi + 8], r8d
    inc dword ptr [rdi + 12]
    cmp dword ptr [rcx], 0
    PLACE \way\()_out
    jne 3f
    OUT
    PLACE \way\()_ret
    ret
1:  ASK_ALL \way\()_table
2:  ASK \way\()_table, 2
3:  ASK \way\()_table, 3
    PLACE \way\()_table
    .fill 4, 8, 0xcc
    PLACE \way\()_end
    .endm

    // In all of them, rdi: the mutex: lock at 0, owner at 8, users at 12, kind at 16, run at 24.
    .p2align 5
    PLACE rt_fast_lock
    cmp dword ptr [rdi + 16], 0
    jne 1f
    mov rdx, gs:[48]
    cmp dword ptr [rdx + {quiet}], 0
    je 1f
    mov r8d, gs:[64]
    mov ecx, gs:[72]
    LOCKED rt_fast_lock

    // In a replay: another thread's mutex is only taken when its turn has come.
    .p2align 5
    PLACE rt_fast_relock
    cmp dword ptr [rdi + 16], 0
    jne 1f
    mov ecx, gs:[72]
    cmp word ptr [rdi + 24], cx
    jne 1f
    mov rdx, gs:[48]
    cmp dword ptr [rdx + {quiet}], 0
    je 1f
    mov r8d, gs:[64]
    LOCKED rt_fast_relock

    .p2align 5
    PLACE rt_fast_unlock
    cmp dword ptr [rdi + 16], 0
    jne 1f
    mov dword ptr [rdi + 8], 0
    dec dword ptr [rdi + 12]
    xor ecx, ecx
    xchg [rdi], ecx
    // From here on the mutex may be gone.
    cmp ecx, 2
    je 2f
    mov rcx, gs:[48]
    cmp dword ptr [rcx], 0
    PLACE rt_fast_unlock_out
    jne 3f
    OUT
    PLACE rt_fast_unlock_ret
    ret
1:  ASK_ALL rt_fast_unlock_table
2:  ASK rt_fast_unlock_table, 2
3:  ASK rt_fast_unlock_table, 3
    PLACE rt_fast_unlock_table
    .fill 4, 8, 0xcc
    PLACE rt_fast_unlock_end

    // In a replay: others may wait for their turn.
    .p2align 5
    PLACE rt_fast_reunlock
    cmp dword ptr [rdi + 16], 0
    jne 1f
    mov dword ptr [rdi + 8], 0
    dec dword ptr [rdi + 12]
    mov r8, [rdi + 24]
    xor ecx, ecx
    xchg [rdi], ecx
    cmp ecx, 2
    je 2f
    // The room of those who wait for the run.
    lea rdx, [rdi + 24]
    movabs rcx, {factor}
    imul rcx, rdx
    shr rcx, {shift}
    movabs rdx, {rooms}
    cmp dword ptr [rdx + 8 * rcx + {waiting}], 0
    jne 4f
    mov rcx, gs:[48]
    cmp dword ptr [rcx], 0
    PLACE rt_fast_reunlock_out
    jne 3f
    OUT
    PLACE rt_fast_reunlock_ret
    ret
1:  ASK_ALL rt_fast_reunlock_table
2:  ASK rt_fast_reunlock_table, 2
3:  ASK rt_fast_reunlock_table, 3
4:  ASK rt_fast_reunlock_table, 4
    PLACE rt_fast_reunlock_table
    .fill 5, 8, 0xcc
    PLACE rt_fast_reunlock_end
"#,
    quiet = const QUIET_BEHIND_PENDING,
    factor = const awaited::FACTOR,
    shift = const awaited::SHIFT,
    rooms = const awaited::rooms(),
    waiting = const offset_of!(WaitingRoom, waiting),
);

/// Code in the runtime's assembly.
type Label = unsafe extern "C" fn();

/// A short way, of which functions get copies.
struct Way {
    first: Label,
    /// From here on all is done but returning 0, ...
    out: Label,
    /// ... which ends here.
    ret: Label,
    /// Behind the code: room for the function's entry, and for what may be asked.
    table: Label,
    end: Label,
    asks: &'static [Label],
}

macro_rules! way {
    ($first:ident, $out:ident, $ret:ident, $table:ident, $end:ident, $asks:expr) => {{
        extern "C" {
            fn $first();
            fn $out();
            fn $ret();
            fn $table();
            fn $end();
        }
        Way {
            first: $first,
            out: $out,
            ret: $ret,
            table: $table,
            end: $end,
            asks: $asks,
        }
    }};
}

static WAYS: [Way; 4] = [
    way!(
        rt_fast_lock,
        rt_fast_lock_out,
        rt_fast_lock_ret,
        rt_fast_lock_table,
        rt_fast_lock_end,
        &[shim::LOCK, shim::ENTERED, shim::NOTHING]
    ),
    way!(
        rt_fast_relock,
        rt_fast_relock_out,
        rt_fast_relock_ret,
        rt_fast_relock_table,
        rt_fast_relock_end,
        &[shim::LOCK, shim::ENTERED, shim::NOTHING]
    ),
    way!(
        rt_fast_unlock,
        rt_fast_unlock_out,
        rt_fast_unlock_ret,
        rt_fast_unlock_table,
        rt_fast_unlock_end,
        &[shim::UNLOCK, shim::LEFT, shim::NOTHING]
    ),
    way!(
        rt_fast_reunlock,
        rt_fast_reunlock_out,
        rt_fast_reunlock_ret,
        rt_fast_reunlock_table,
        rt_fast_reunlock_end,
        &[shim::UNLOCK, shim::LEFT, shim::NOTHING, shim::CALLED]
    ),
];
const LOCK: usize = 0;
const RELOCK: usize = 1;
const UNLOCK: usize = 2;
const REUNLOCK: usize = 3;

/// Bytes of a copy: the same in a recording and in its replay, whose ways differ.
const COPY: usize = 320;
/// Most copies: older libraries have the functions twice.
const MAX_COPIES: usize = 8;

/// A copy.
struct Copy {
    /// Where it is, 0: there is none.
    at: AtomicU64,
    /// The function's entry.
    entry: AtomicU64,
    /// Which way.
    way: AtomicU32,
}

static COPIES: [Copy; MAX_COPIES] = [const {
    Copy {
        at: AtomicU64::new(0),
        entry: AtomicU64::new(0),
        way: AtomicU32::new(0),
    }
}; MAX_COPIES];

fn at(code: Label) -> u64 {
    code as *const () as u64
}

/// The short way that a function has.
pub fn way_of(f: &Function) -> Option<usize> {
    let replays = in_force::replays_synchronisation();
    match f.name {
        // Every unlock is to be seen.
        _ if crate::thread::in_force::looks_for_races() => None,
        // Every operation is made in a turn.
        _ if in_force::has_private_views() => None,
        // Every call is counted, and slices may end at each.
        _ if in_force::runs_one_at_a_time() => None,
        b"pthread_mutex_lock" if replays => Some(RELOCK),
        b"pthread_mutex_lock" => Some(LOCK),
        b"pthread_mutex_unlock" if replays => Some(REUNLOCK),
        b"pthread_mutex_unlock" => Some(UNLOCK),
        _ => None,
    }
}

/// Makes a copy of a way near the function with this entry: where it is.
pub fn copy(way: usize, entry: u64) -> Option<u64> {
    let w = &WAYS[way];
    let free = COPIES.iter().find(|c| c.at.load(Relaxed) == 0)?;
    let (first, end) = (at(w.first), at(w.end));
    let table = (at(w.table) - first) as usize;
    let mut bytes = [0xcc; COPY];
    guard::read_bytes(first, bytes.get_mut(..(end - first) as usize)?).then_some(())?;
    let asks = w.asks.iter().map(|ask| at(*ask));
    for (i, address) in core::iter::once(entry).chain(asks).enumerate() {
        bytes[table + 8 * i..][..8].copy_from_slice(&address.to_le_bytes());
    }
    let to = patch::place(entry, COPY as u64)?;
    patch::write_code(to, &bytes).then_some(())?;
    free.way.store(way as u32, Relaxed);
    free.entry.store(entry, Relaxed);
    free.at.store(to, Release);
    Some(to)
}

/// The copy that this address is in: its way, how far it is in it, and the function's entry.
fn find(pc: u64) -> Option<(&'static Way, u64, u64)> {
    COPIES.iter().find_map(|c| {
        let begin = c.at.load(Acquire);
        let here = begin != 0 && pc.wrapping_sub(begin) < COPY as u64;
        let way = c.way.load(Relaxed) as usize;
        here.then(|| (&WAYS[way], pc - begin, c.entry.load(Relaxed)))
    })
}

/// Is this address in a copy?
pub fn is_inside(pc: u64) -> bool {
    find(pc).is_some()
}

/// The entry of the function whose copy this address is in.
pub fn entry_of(pc: u64) -> Option<u64> {
    find(pc).map(|(_, _, entry)| entry)
}

/// Is all done there but returning 0?
pub fn is_out(pc: u64) -> bool {
    find(pc).is_some_and(|(w, offset, _)| {
        let there = at(w.first) + offset;
        (at(w.out)..=at(w.ret)).contains(&there)
    })
}
