//! Limits of the user that are meant for the program, and would end the recorder: how many descriptors a process may have (`ulimit -n`), and
//! how large its files may get (`ulimit -f`), which the kernel says by a signal that kills, and which counts memory that is a file, too.
//!
//! The recorder takes all that it may have. The program begins with what the user gave.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

const RAISED: [(libc::__rlimit_resource_t, libc::rlim_t); 2] = [
    (libc::RLIMIT_NOFILE, 4096),
    (libc::RLIMIT_FSIZE, libc::RLIM_INFINITY),
];

/// What the limits were.
static BEFORE: OnceLock<[Option<libc::rlimit>; 2]> = OnceLock::new();
static IGNORED: AtomicBool = AtomicBool::new(false);

fn get(which: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut l = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills a struct of ours.
    (unsafe { libc::getrlimit(which, &mut l) } == 0).then_some(l)
}

fn set(which: libc::__rlimit_resource_t, limit: &libc::rlimit) -> bool {
    // SAFETY: reads a struct of ours.
    unsafe { libc::setrlimit(which, limit) == 0 }
}

/// Takes what this process may have; a file that gets too large is an error from here on. Called once, before anything is started.
pub fn raise() {
    BEFORE.get_or_init(|| {
        // SAFETY: a disposition of this process, which has one thread.
        let was = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        IGNORED.store(was == libc::SIG_IGN, Relaxed);
        RAISED.map(|(which, wanted)| {
            let before = get(which)?;
            let more = libc::rlimit {
                rlim_cur: before.rlim_max.max(wanted),
                rlim_max: before.rlim_max.max(wanted),
            };
            let all = libc::rlimit {
                rlim_cur: before.rlim_max,
                ..before
            };
            // Only root may raise the upper one.
            let _ = set(which, &more) || set(which, &all);
            Some(before)
        })
    });
}

/// How many descriptors this process may have.
pub fn descriptors() -> u64 {
    get(libc::RLIMIT_NOFILE).map_or(u64::MAX, |l| l.rlim_cur)
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
        // SAFETY: reads a disposition.
        None => unsafe {
            let mut a: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut a) == 0
                && a.sa_sigaction == libc::SIG_IGN
        },
    }
}

/// In a child that becomes the program: gives it the user's limits. Safe after fork.
pub(crate) fn give_back() {
    let Some(before) = BEFORE.get() else { return };
    for ((which, _), limit) in RAISED.iter().zip(before) {
        if let Some(limit) = limit {
            set(*which, limit);
        }
    }
    if !IGNORED.load(Relaxed) {
        // SAFETY: a disposition of this process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}

/// Why a file, or memory that is one, can't get this large, if it is for the user's limit.
pub(crate) fn too_large(len: u64) -> Option<String> {
    let limit = get(libc::RLIMIT_FSIZE)?.rlim_cur;
    (limit < len).then(|| {
        format!("files may have {limit} bytes here (`ulimit -f`), and the recording's shared memory needs {len}: raise the limit")
    })
}
