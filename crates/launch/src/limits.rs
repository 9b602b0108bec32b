//! Limits of the user that are meant for the program, and would end the recorder: how many descriptors a process may have (`ulimit -n`), and
//! how large its files may get (`ulimit -f`), which the kernel says by a signal that kills, and which counts memory that is a file, too.
//!
//! The recorder takes all that it may have. The program begins with what the user gave.

use crate::dispositions;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

/// What is raised, and to how much at least; `None`: no limit.
const RAISED: [(Resource, Option<u64>); 2] =
    [(Resource::Nofile, Some(4096)), (Resource::Fsize, None)];

/// What the limits were.
static BEFORE: OnceLock<[Rlimit; 2]> = OnceLock::new();
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Takes what this process may have; a file that gets too large is an error from here on. Called once, before anything is started.
pub fn raise() {
    BEFORE.get_or_init(|| {
        IGNORED.store(dispositions::ignore(libc::SIGXFSZ), Relaxed);
        RAISED.map(|(which, wanted)| {
            let before = getrlimit(which);
            let most = before.maximum.zip(wanted).map(|(a, b)| a.max(b));
            let more = Rlimit {
                current: most,
                maximum: most,
            };
            let all = Rlimit {
                current: before.maximum,
                ..before
            };
            // Only root may raise the upper one.
            let _ = setrlimit(which, more).or_else(|_| setrlimit(which, all));
            before
        })
    });
}

/// How many descriptors this process may have.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What a recorder has open at a time beside what it was started with, in a recording of one process that execs.
const NEEDED: u64 = 12;

/// Are there descriptors enough to begin?
///
/// # Errors
/// What to say where there are not.
pub fn suffice() -> Result<(), String> {
    let may = descriptors();
    let open = std::fs::read_dir("/proc/self/fd").map_or(u64::MAX, |all| all.count() as u64);
    match open.saturating_add(NEEDED) <= may {
        true => Ok(()),
        false => Err(format!(
            "{may} descriptors (`ulimit -n`) are too few: a recording needs {NEEDED} of its own"
        )),
    }
}

/// Does the program find SIGXFSZ ignored?
pub(crate) fn ignores_size() -> bool {
    match BEFORE.get() {
        Some(_) => IGNORED.load(Relaxed),
        None => dispositions::is_ignored(libc::SIGXFSZ),
    }
}

/// In a child that becomes the program: gives it the user's limits. Safe after fork.
pub(crate) fn give_back() {
    let Some(before) = BEFORE.get() else { return };
    for ((which, _), limit) in RAISED.iter().zip(before) {
        let _ = setrlimit(*which, *limit);
    }
    if !IGNORED.load(Relaxed) {
        dispositions::restore_default(libc::SIGXFSZ);
    }
}

/// Why a file, or memory that is one, can't get this large, if it is for the user's limit.
pub(crate) fn too_large(len: u64) -> Option<String> {
    let limit = getrlimit(Resource::Fsize).current?;
    (limit < len).then(|| {
        format!("files may have {limit} bytes here (`ulimit -f`), and the recording's shared memory needs {len}: raise the limit")
    })
}
