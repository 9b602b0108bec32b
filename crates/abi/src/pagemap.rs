//! The kernel's search in page tables, PAGEMAP_SCAN (PAGEMAP_SCAN(2const); include/uapi/linux/fs.h): the runtime asks about its own process, the tools about others.

/// The request of ioctl(2) on /proc/PID/pagemap.
pub const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// What a page is.
pub mod category {
    /// It is of a file, or shared.
    pub const FILE: u64 = 1 << 2;
    /// It is in memory.
    pub const PRESENT: u64 = 1 << 3;
    /// It is on a swap device.
    pub const SWAPPED: u64 = 1 << 4;
    /// It is a guard (MADV_GUARD_INSTALL; told since Linux 6.16).
    pub const GUARD: u64 = 1 << 8;
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
pub struct ScanArgument {
    /// Bytes of this.
    pub size: u64,
    /// None are used here.
    pub flags: u64,
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Where the search ended; kernels up to 6.18 leave it stale where more than 512 ranges are asked for.
    pub walk_end: u64,
    /// Address of an array of [`PageRange`], ...
    pub vec: u64,
    /// ... and how many it has room for.
    pub vec_len: u64,
    /// Most pages, 0 for any number.
    pub max_pages: u64,
    /// Of the categories that count the other way round.
    pub category_inverted: u64,
    /// Of those that a page must have.
    pub category_mask: u64,
    /// Of those of which it must have one.
    pub category_anyof_mask: u64,
    /// Of those that are told.
    pub return_mask: u64,
}

/// `struct page_region`: pages of the same categories, one behind the other.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PageRange {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Those of [`ScanArgument::return_mask`] that they have.
    pub categories: u64,
}

const _: () = assert!(core::mem::size_of::<ScanArgument>() == 96);
const _: () = assert!(core::mem::size_of::<PageRange>() == 24);
