//! What a thread keeps of its log.

use core::cell::Cell;
use core::sync::atomic::AtomicBool;

/// See the module.
#[derive(Default)]
pub struct Logging {
    /// Its quiet operations are counted, by what is missing from [`Slot::quiet_left`](reprise_abi::session::Slot::quiet_left) (record).
    pub counts: Cell<bool>,
    /// It writes into the ring that no thread has, of what the world does to the program.
    pub world: AtomicBool,
    /// Stamps that the event being written has, ...
    pub stamps: [u64; 2],
    /// ... and how many of them.
    pub stamped: u8,
}

impl Logging {
    /// The stamps of the event that is being written.
    pub fn stamps(&self) -> &[u64] {
        &self.stamps[..self.stamped as usize]
    }
}
