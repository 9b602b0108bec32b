//! Which processor a thread runs on, as the program is told by whatever it asks: getcpu(2), which `sched_getcpu` calls, rdtscp, and the masks of
//! sched_setaffinity(2).
//!
//! Where threads are where the kernel puts them ([`Engine::KERNEL_PLACES`]), it is the kernel that knows. Where they share one processor, that one
//! is shown until the program says where it wants to be: from then on a thread is on the first processor that it chose, and nobody moves it.

use crate::engine::Engine;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::process;
use crate::thread::{block_address, session, slot, Block, Frame};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::syscalls::nr;

const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// Words of a mask.
const WORDS: usize = 16;

/// The first processor of a mask.
fn first(mask: &[u64; WORDS]) -> Option<u32> {
    let (word, bits) = mask.iter().enumerate().find(|(_, w)| **w != 0)?;
    Some(64 * word as u32 + bits.trailing_zeros())
}

/// The processor that the thread is on for having chosen it.
pub fn chosen(t: &Block) -> Option<u32> {
    t.affinity.as_ref().and_then(first)
}

/// The first processor that the kernel lets the calling thread run on.
pub fn first_allowed() -> u32 {
    let mut mask = [0u64; WORDS];
    let bytes = size_of_val(&mask) as u64;
    sys::sched_getaffinity(0, bytes, mask.as_mut_ptr() as u64);
    first(&mask).unwrap_or(0)
}

/// getcpu(2)
pub fn number<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let Some(chosen) = chosen(t).filter(|_| !E::KERNEL_PLACES) else {
        return E::syscall(t, c, frame);
    };
    let tell = |at: u64, value: u32| at == 0 || guard::write(at, &value);
    let told = tell(c.args[0], chosen) && tell(c.args[1], 0);
    E::computed(t, c, if told { 0 } else { EFAULT })
}

/// The block of the thread with this id, if it is one of the calling thread's process.
fn block_of(t: &Block, id: u32) -> Option<&'static mut Block> {
    let i = (0..session().slots_used.load(Relaxed)).find(|i| {
        slot(*i).visible_tid.load(Relaxed) == id
            && slot(*i).process.load(Relaxed) == t.slot_process()
    })?;
    // SAFETY: another thread of this process, which rests: the caller holds the baton, and `mask` doesn't ask for itself.
    Some(unsafe { &mut *(block_address(i) as *mut Block) })
}

/// sched_setaffinity(2), sched_getaffinity(2). Where threads share a processor, the program is told of all processors it was started with, or of
/// those that it chose; it is not moved.
pub fn mask<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let s = session();
    let target = c.args[0] as u32;
    let is_own = target == 0 || target == t.slot().visible_tid.load(Relaxed);
    let is_ours = is_own
        || (0..s.slots_used.load(Relaxed)).any(|i| slot(i).visible_tid.load(Relaxed) == target);
    if !is_ours || E::KERNEL_PLACES {
        return E::syscall(t, c, frame);
    }
    if c.nr == nr::SCHED_SETAFFINITY {
        let mut wanted = [0u64; WORDS];
        // SAFETY: the bytes of an array.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(
                wanted.as_mut_ptr() as *mut u8,
                size_of::<[u64; WORDS]>(),
            )
        };
        let len = (c.args[1] as u32 as usize).min(bytes.len());
        if !guard::read_bytes(c.args[2], &mut bytes[..len]) {
            return E::computed(t, c, EFAULT);
        }
        for (w, has) in wanted.iter_mut().zip(&s.affinity) {
            *w &= has;
        }
        if wanted == [0; WORDS] {
            return E::computed(t, c, EINVAL);
        }
        if is_own {
            t.affinity = Some(wanted);
        } else if let Some(other) = block_of(t, target) {
            other.affinity = Some(wanted);
        }
        return E::computed(t, c, 0);
    }
    // There must be room for as many bits as the kernel has processors, and it writes at most its own mask, which may be longer.
    let [least, most] = s.affinity_len.map(usize::from);
    let room = c.args[1] as u32 as usize;
    if room < least || room % 8 != 0 {
        return E::computed(t, c, EINVAL);
    }
    let len = room.min(most).min(size_of_val(&s.affinity));
    let of = if is_own {
        t.affinity
    } else {
        block_of(t, target).and_then(|other| other.affinity)
    };
    let mask = of.unwrap_or(s.affinity);
    // SAFETY: the words of an array.
    let bytes = unsafe { core::slice::from_raw_parts(mask.as_ptr() as *const u8, len) };
    let r = if guard::write_bytes(c.args[2], bytes) {
        len as i64
    } else {
        EFAULT
    };
    E::computed(t, c, r)
}

/// The calling thread is about to exec: what its process becomes is where it is.
pub fn before_exec(t: &Block) {
    let mask = t.affinity.unwrap_or_default();
    let kept = &process::entry().affinity;
    for (i, word) in kept.iter().enumerate() {
        word.store((mask[i / 2] >> (32 * (i % 2))) as u32, Relaxed);
    }
}

/// The first thread of a program that a process has become.
pub fn after_exec(t: &mut Block) {
    let mut mask = [0u64; WORDS];
    for (i, word) in process::entry().affinity.iter().enumerate() {
        mask[i / 2] |= u64::from(word.load(Relaxed)) << (32 * (i % 2));
    }
    t.affinity = Some(mask).filter(|mask| *mask != [0; WORDS]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_of_a_mask() {
        let mut mask = [0; WORDS];
        assert_eq!(first(&mask), None);
        mask[1] = 0b1100;
        assert_eq!(first(&mask), Some(66));
        mask[0] = 1;
        assert_eq!(first(&mask), Some(0));
    }
}
