//! Memory as a file: /proc/PID/mem, opened to be written.
//!
//! What is written there changes memory that no argument of the call points to, even where the program itself may not write. The
//! program is told that it may not, as it is where another security module rules; reading is an ordinary read.

use crate::machine::{guard, sys};
use crate::memory::capture::Call;
use crate::thread::message;
use reprise_abi::notes;
use reprise_abi::syscalls::nr;

const EACCES: i64 = -13;
const O_ACCMODE: u64 = 3;
/// Longest path that the kernel takes.
const PATH_MAX: usize = 4096;
/// Type of the file system (statfs(2)).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// What the program gets for an open that gave `result`: that, or EACCES when it is the descriptor of writable memory.
pub fn opened(c: &Call, result: i64) -> i64 {
    let (path, flags) = match c.nr {
        nr::OPEN => (c.local[0], c.args[1]),
        nr::OPENAT => (c.local[1], c.args[2]),
        nr::OPENAT2 => (c.local[1], guard::read::<u64>(c.local[2]).unwrap_or(0)),
        _ => return result,
    };
    if result < 0 || flags & O_ACCMODE == 0 || !is_called_mem(path) {
        return result;
    }
    let mut about = [0u64; 15];
    let asked = sys::fstatfs(result as u64, about.as_mut_ptr() as u64);
    if asked != 0 || about[0] != PROC_SUPER_MAGIC {
        return result;
    }
    sys::close(result as u64);
    message::note(notes::MEMORY_FILE);
    EACCES
}

/// Does the path end with `mem`, as a whole name?
fn is_called_mem(path: u64) -> bool {
    let Some(len) = guard::string_len(path, PATH_MAX) else {
        return false;
    };
    let mut end = [b'/'; 4];
    let n = len.min(4);
    guard::read_bytes(path + (len - n) as u64, &mut end[4 - n..]) && end == *b"/mem"
}
