//! Programs' own seccomp filters, in the session's shared memory: they outlive an exec, and children inherit them.
//!
//! As in the kernel (kernel/seccomp.c) they form a tree: a thread's filter is a leaf, whose ancestors apply, too. Filters are never
//! given back; one that is installed again on top of the same parent is shared.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::layout::MAX_SLOTS;
use crate::session::{Slot, SESSION_LEN};

/// Most different filters in a session.
pub const MAX_FILTERS: usize = 1024;
/// Most instructions of all of them together.
pub const MAX_INSTRUCTIONS: usize = 256 << 10;
/// Most instructions of one filter (BPF_MAXINSNS).
pub const MAX_FILTER_LEN: usize = 4096;

/// A filter. Its number is its place in the list plus 1.
#[repr(C)]
pub struct Filter {
    /// Number of the filter below it, 0 for none.
    pub parent: AtomicU32,
    /// Index of its first instruction.
    pub start: AtomicU32,
    /// Number of instructions.
    pub len: AtomicU32,
    /// 1 for strict mode.
    pub strict: AtomicU32,
}

/// All filters of a session. Zero bytes are an empty one.
#[repr(C, align(4096))]
pub struct Filters {
    /// Filters in `list`.
    pub used: AtomicU32,
    /// Instructions in `code`.
    pub code_used: AtomicU32,
    /// The filters.
    pub list: [Filter; MAX_FILTERS],
    /// Their instructions: `struct sock_filter` as a word (code, jt, jf, k from the lowest bits up).
    pub code: [AtomicU64; MAX_INSTRUCTIONS],
}

/// Bytes of the filters.
pub const FILTERS_LEN: usize = core::mem::size_of::<Filters>();
/// Offset of the filters in the session's memory.
pub const FILTERS_OFFSET: usize =
    (SESSION_LEN + MAX_SLOTS * core::mem::size_of::<Slot>()).next_multiple_of(4096);

const _: () = assert!(core::mem::size_of::<Filter>() == 16);
