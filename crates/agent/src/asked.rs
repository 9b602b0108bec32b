//! What the open request asks for, as far as its words alone tell. They lie in memory that the program can write, so any words may stand there:
//! each is read once, and what comes out of here fits the tables and the window that it is for. Whom it is about has still to be checked by the
//! kernel's word ([`crate::members`]).

use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{request, MAX_PROCESSES, WINDOW_LEN};
use reprise_launch::SharedSession;
use std::sync::atomic::Ordering::*;

/// A request. An id that is `None` is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// [`request::KEEP_FILE`]
    KeepFile {
        /// The descriptor, ...
        descriptor: i32,
        /// ... and whose it is.
        process: Option<u32>,
        /// Its times don't tell whether it changed.
        changing: bool,
    },
    /// [`request::HAND_FILE`]
    HandFile {
        /// Bytes in the window; 0: that was all.
        len: usize,
        /// They are the file's first.
        first: bool,
        /// What tells the file from others; of meaning when that was all.
        identity: u64,
    },
    /// [`request::REFER`]
    Refer {
        /// The descriptor, ...
        descriptor: i32,
        /// ... and whose it is.
        process: Option<u32>,
        /// A mapping is to refer to the file.
        for_mapping: bool,
    },
    /// [`request::SETTLE`]
    Settle {
        /// The row of the table of inputs.
        row: usize,
    },
    /// [`request::EXEC`]
    Exec {
        /// The process and its thread.
        who: Option<(u32, u32)>,
        /// The thread's slot.
        slot: Option<usize>,
    },
    /// [`request::FORGET_EVENT`]
    ForgetEvent {
        /// Where the next event begins.
        next: u64,
    },
    /// [`request::NATIVE_CPUID`]
    NativeCpuid {
        /// Who has the file mapped, ...
        process: Option<u32>,
        /// ... and where.
        address: u64,
    },
    /// [`request::FIND`]
    Find {
        /// The process's id in its namespace.
        process: u32,
        /// The thread's.
        thread: u32,
        /// The process's number in the session.
        number: usize,
    },
}

impl Asked {
    /// The open request of a recording, if there is one.
    pub fn open(shared: &SharedSession) -> Option<Asked> {
        let q = &shared.session().request;
        let kind = q.kind.load(Acquire);
        Asked::of(kind, [0, 1, 2].map(|i| q.args[i].load(Relaxed)))
    }

    /// The request of this kind with these arguments; none of a kind that nobody answers while recording.
    pub fn of(kind: u32, args: [u64; 3]) -> Option<Asked> {
        let id = |word: u64| u32::try_from(word).ok();
        Some(match kind {
            request::KEEP_FILE => Asked::KeepFile {
                descriptor: args[0] as i32,
                process: id(args[1]),
                changing: args[2] != 0,
            },
            request::HAND_FILE => Asked::HandFile {
                len: (args[0] as usize).min(WINDOW_LEN),
                first: args[1] == 0,
                identity: args[2],
            },
            request::REFER => Asked::Refer {
                descriptor: args[0] as i32,
                process: id(args[1]),
                for_mapping: args[2] != 0,
            },
            request::SETTLE => Asked::Settle {
                row: args[0] as usize,
            },
            request::EXEC => Asked::Exec {
                who: id(args[1]).zip(id(args[0])),
                slot: Some(args[2] as usize).filter(|slot| *slot < MAX_SLOTS),
            },
            request::FORGET_EVENT => Asked::ForgetEvent { next: args[0] },
            request::NATIVE_CPUID => Asked::NativeCpuid {
                process: id(args[0]),
                address: args[1],
            },
            request::FIND => Asked::Find {
                process: args[0] as u32,
                thread: args[1] as u32,
                number: args[2] as u32 as usize % MAX_PROCESSES,
            },
            _ => return None,
        })
    }
}
