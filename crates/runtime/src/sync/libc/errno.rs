//! The program's `errno`, for the functions that set it. It lies at the same distance from every thread's thread pointer, since libc's
//! thread-local storage is static; libc says where.

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::machine::guard;
use crate::signal::kernel;
use crate::sync::hook;
use crate::thread::Block;
use core::sync::atomic::{AtomicI64, Ordering::*};

/// Distance from the thread pointer; 0: not known.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Sets the calling thread's.
#[cold]
pub fn set(t: &mut Block, errno: u32) {
    let mut offset = OFFSET.load(Relaxed);
    if offset == 0 {
        let Some(function) = hook::errno_location() else {
            return;
        };
        // For a moment the program's code runs on the gate stack: no handler may come.
        kernel::block_all();
        // SAFETY: a function without arguments that adds two numbers.
        let location = unsafe { core::mem::transmute::<u64, extern "C" fn() -> u64>(function) };
        offset = location().wrapping_sub(t.fs_base) as i64;
        with_engine!(E => if E::LIVE { kernel::sync_mask(t) });
        OFFSET.store(offset, Relaxed);
    }
    guard::write(t.fs_base.wrapping_add_signed(offset), &errno);
}
