//! The shared memory of engines that have a ring a thread (DESIGN 5, `order`): its head, and the ring of each slot.

use crate::thread::{current, in_force, session, Current};
use reprise_abi::news;
use reprise_abi::order::{ring_offset, OrderHead, ORDER_BASE};
use reprise_abi::ring::RingControl;
use reprise_abi::session::FLAG_LOGS;

/// The engine's shared memory.
#[inline(always)]
pub fn head() -> &'static OrderHead {
    // SAFETY: the launcher maps it for this engine; it is only integers and atomics.
    unsafe { &*(ORDER_BASE as *const OrderHead) }
}

/// The ring of a slot: its indices, its first byte, its size.
#[inline(always)]
pub fn ring_of(slot: u32) -> (&'static RingControl, u64, u64) {
    let (h, i) = (head(), slot as usize);
    (
        &h.rings[i],
        ORDER_BASE + ring_offset(i, h.ring_size),
        h.ring_size,
    )
}

/// Has every thread a ring of its own?
#[inline(always)]
pub fn has_rings() -> bool {
    in_force::orders_synchronisation()
        || in_force::has_private_views() && session().flags & FLAG_LOGS != 0
}

/// The slot whose ring the thread uses.
#[inline(always)]
pub fn own_ring(t: Current) -> u32 {
    match t.world().load(core::sync::atomic::Ordering::Relaxed) {
        false => t.slot_number(),
        true => reprise_abi::det::WORLD_SLOT,
    }
}

/// The agent, or the driver, should look at the calling thread's ring.
#[inline]
pub fn tell_news() {
    if !has_rings() {
        return;
    }
    news::tell(&head().news, own_ring(current()) as usize);
}
