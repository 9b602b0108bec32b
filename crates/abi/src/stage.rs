//! Replay: the plan by which the runtime builds the recorded address space, once it has unmapped everything else.
//!
//! It lies at [`STAGE_BASE`](crate::layout::STAGE_BASE): a [`Stage`], then `ops` times a [`StageOp`], then bytes.

/// "stage\0\0\0" as a little-endian word.
pub const STAGE_MAGIC: u64 = 0x0000_0065_6761_7473;

/// mmap: `addr`, `len`, `prot`, `flags` (MAP_FIXED is added), `fd` or -1, `offset`.
pub const OP_MAP: u32 = 1;
/// Copy `len` bytes from `offset` in the stage to `addr`.
pub const OP_COPY: u32 = 2;
/// mprotect: `addr`, `len`, `prot`.
pub const OP_PROTECT: u32 = 3;
/// Close `fd`.
pub const OP_CLOSE: u32 = 4;
/// madvise, MADV_GUARD_INSTALL: `addr`, `len`.
pub const OP_GUARD: u32 = 5;

/// The head of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stage {
    /// [`STAGE_MAGIC`].
    pub magic: u64,
    /// Number of operations.
    pub ops: u64,
    /// Descriptor of the trace's directory of files.
    pub files: i64,
    /// Bytes of the whole plan, which is unmapped when it is done.
    pub len: u64,
}

/// One step of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StageOp {
    /// One of [`OP_MAP`] and those after it.
    pub kind: u32,
    /// Protection.
    pub prot: u32,
    /// mmap flags.
    pub flags: u32,
    /// Descriptor.
    pub fd: i32,
    /// Where.
    pub addr: u64,
    /// How much.
    pub len: u64,
    /// From where.
    pub offset: u64,
}

const _: () = assert!(core::mem::size_of::<Stage>() == 32);
const _: () = assert!(core::mem::size_of::<StageOp>() == 40);
