//! How a call opens a file: by which name, from where, and with which flags of open(2).

use crate::machine::guard;
use crate::memory::capture::Call;
use reprise_abi::effect::{Effect, OpenFlags};

const AT_FDCWD: u64 = -100i64 as u64;
/// The flags that creat(2) stands for: O_CREAT, O_WRONLY and O_TRUNC.
const CREATES: u64 = 0o1101;

/// What such a call says, as the kernel gets it.
pub struct Opening {
    /// Where a relative name begins: a descriptor, or AT_FDCWD.
    pub dir: u64,
    /// Address of the name; `None`: the file has a handle.
    pub path: Option<u64>,
    /// `None`: they can't be read.
    pub flags: Option<u64>,
}

impl Opening {
    /// Of a call that opens a file.
    pub fn of(c: &Call) -> Option<Opening> {
        let Effect::OpensFile(o) = c.effect else {
            return None;
        };
        let local = |n: u8| c.local[n as usize];
        Some(Opening {
            dir: o.dir.map_or(AT_FDCWD, local),
            path: o.path.map(local),
            flags: match o.flags {
                OpenFlags::In(n) => Some(local(n)),
                OpenFlags::Behind(n) => guard::read(local(n)),
                OpenFlags::Creates => Some(CREATES),
            },
        })
    }
}
