//! How a stopped process comes to the memory that it is to map: the calls for that, made in its name.

use crate::remote::{Calls, OF_FIRST, OF_SECOND, ON_FIRST, ON_SECOND, TO_FIRST, TO_SECOND};
use std::os::fd::RawFd;

/// How a stopped process reaches the runtime's image and the session.
#[derive(Clone, Copy)]
pub(crate) enum Reach {
    /// It has these descriptors of them.
    Has([RawFd; 2]),
    /// It opens those of this process.
    Opens([RawFd; 2]),
}

impl Reach {
    /// The calls by which it gets them; how many.
    pub(crate) fn open(self, calls: &mut Calls) -> usize {
        let Reach::Opens(ours) = self else { return 0 };
        for (fd, to) in ours.into_iter().zip([TO_FIRST, TO_SECOND]) {
            let path = format!("/proc/{}/fd/{fd}\0", std::process::id());
            let at = calls.data(path.as_bytes());
            let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
            calls.add(
                libc::SYS_openat,
                [libc::AT_FDCWD as u64, at, flags, 0, 0, 0],
                to,
            );
        }
        ours.len()
    }

    /// The calls by which it gives them up.
    pub(crate) fn close(self, calls: &mut Calls) {
        let fds = match self {
            Reach::Has(fds) => fds.map(|fd| (fd as u64, 0)),
            Reach::Opens(_) => [(0, ON_FIRST), (0, ON_SECOND)],
        };
        for (fd, how) in fds {
            calls.add(libc::SYS_close, [fd, 0, 0, 0, 0, 0], how);
        }
    }

    /// The image as the fifth argument of a call, and how it is told.
    pub(crate) fn image(self) -> (u64, u64) {
        match self {
            Reach::Has([fd, _]) => (fd as u64, 0),
            Reach::Opens(_) => (0, OF_FIRST),
        }
    }

    /// The session likewise.
    pub(crate) fn session(self) -> (u64, u64) {
        match self {
            Reach::Has([_, fd]) => (fd as u64, 0),
            Reach::Opens(_) => (0, OF_SECOND),
        }
    }
}
