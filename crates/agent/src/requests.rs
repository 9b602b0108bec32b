//! Requests of the runtime that are answered before the program goes on.

use crate::asked::Asked;
use crate::kept::Keeper;
use crate::members::Members;
use crate::native::NativeCpuid;
use crate::outsiders::Outsiders;
use crate::rights;
use reprise_abi::session::{file_identity, request, WINDOW_OFFSET};
use reprise_launch::{futex, SharedSession};
use reprise_trace::TraceError;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Largest file that is handed over in parts, in bytes.
const MAX_HANDED: usize = 1 << 30;

/// Takes a part of a file out of the window; after the last one the file is kept.
fn take_part(
    shared: &SharedSession,
    (len, first, identity): (usize, bool, u64),
    keeper: &mut Keeper,
    handed: &mut Vec<u8>,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let mut lost = None;
    let q = &shared.session().request;
    if first {
        handed.clear();
    }
    q.status.store(0, Relaxed);
    if len > 0 {
        if handed.len() + len > MAX_HANDED {
            warnings.push(format!(
                "a mapped file could not be kept: more than {MAX_HANDED} bytes, and the agent may not open it"
            ));
            q.status.store(libc::EFBIG as u32, Relaxed);
        } else {
            let at = handed.len();
            handed.resize(at + len, 0);
            let window = std::ptr::from_ref(shared.session()).cast::<u8>();
            // SAFETY: the window is part of the session's mapping; the program waits for the answer.
            unsafe {
                let from = window.add(WINDOW_OFFSET);
                std::ptr::copy_nonoverlapping(from, handed[at..].as_mut_ptr(), len);
            }
        }
    } else {
        match keeper.store.keep_bytes_into(handed, &keeper.dir) {
            Ok(k) => {
                let [a, b] = k.hash.to_words();
                for (to, word) in q.answer.iter().zip([a, b, k.len]) {
                    to.store(word, Relaxed);
                }
                q.answer[3].store(identity, Relaxed);
            }
            Err(why) => {
                lost = Some(format!("a mapped file could not be kept: {why}"));
                q.status.store(libc::EIO as u32, Relaxed);
            }
        }
        *handed = Vec::new();
    }
    done(shared);
    lost
}

/// Why a file could not be kept.
enum Unkept {
    /// A replay will miss it.
    File(String),
    /// Nothing more can be kept.
    All(String),
}

impl Unkept {
    fn read(e: std::io::Error) -> Unkept {
        match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Unkept::All(e.to_string()),
            _ => Unkept::File(e.to_string()),
        }
    }

    fn kept(e: TraceError) -> Unkept {
        match e {
            TraceError::Io { .. } | TraceError::TraceFull { .. } => Unkept::All(e.to_string()),
            _ => Unkept::File(e.to_string()),
        }
    }
}

/// Answers the open request for a file, if there is one. `handed`: what came of a file in parts. When nothing more can be kept it says why.
pub fn answer(
    shared: &SharedSession,
    members: &Members,
    keeper: &mut Keeper,
    handed: &mut Vec<u8>,
    outsiders: &mut Outsiders,
    native: &mut NativeCpuid,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let q = &shared.session().request;
    // Somebody else's file is nobody's to ask for.
    let member = |pid: Option<u32>| pid.filter(|pid| members.has(shared, *pid));
    let kind = q.kind.load(Acquire);
    if kind != request::NONE && Asked::of(kind, [0; 3]).is_none() {
        // Nothing that the runtime asks for: whoever waits for the box is to have it.
        q.status.store(libc::EINVAL as u32, Relaxed);
        done(shared);
    }
    let (fd, pid, changing) = match Asked::open(shared)? {
        Asked::NativeCpuid { process, address } => {
            native.found(member(process), address);
            q.status.store(0, Relaxed);
            done(shared);
            return None;
        }
        Asked::HandFile {
            len,
            first,
            identity,
        } => return take_part(shared, (len, first, identity), keeper, handed, warnings),
        Asked::KeepFile {
            descriptor,
            process,
            changing,
        } => (descriptor, member(process), changing),
        _ => return None,
    };
    let path = format!("/proc/{}/fd/{fd}", pid.unwrap_or(0));
    let file = match pid {
        Some(pid) => rights::open_descriptor(pid, fd),
        None => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
    };
    if file.as_ref().err().map(std::io::Error::kind) == Some(std::io::ErrorKind::PermissionDenied) {
        // The program hands it over.
        q.status.store(libc::EACCES as u32, Relaxed);
        done(shared);
        return None;
    }
    let kept = file.map_err(Unkept::read).and_then(|f| {
        let name = std::fs::read_link(&path).unwrap_or_default();
        let kept = if changing {
            keeper.keep_changing(&f, &name)
        } else {
            keeper.keep(shared, &f, &name)
        };
        let kept = kept.map_err(Unkept::kept)?;
        // Which file it is, whatever its content: two mappings of one file are the same memory.
        let meta = f.metadata().map_err(Unkept::read)?;
        q.answer[3].store(file_identity(meta.dev(), meta.ino()), Relaxed);
        if changing {
            outsiders.shares(meta.dev(), meta.ino(), &name);
        }
        Ok(kept)
    });
    let mut lost = None;
    match kept {
        Ok(k) => {
            tracing::debug!(pid, fd, hash = %k.hash, len = k.len, changing, "file kept");
            let [a, b] = k.hash.to_words();
            q.answer[0].store(a, Relaxed);
            q.answer[1].store(b, Relaxed);
            q.answer[2].store(k.len, Relaxed);
            q.status.store(0, Relaxed);
        }
        Err(why) => {
            let name = std::fs::read_link(&path).unwrap_or_default();
            tracing::debug!(pid, fd, ?name, "file not kept");
            let say = |why| format!("a mapped file could not be kept: {}: {why}", name.display());
            match why {
                Unkept::File(why) => warnings.push(say(why)),
                Unkept::All(why) => lost = Some(say(why)),
            }
            q.status.store(libc::EIO as u32, Relaxed);
            for a in &q.answer {
                a.store(0, Relaxed);
            }
        }
    }
    done(shared);
    lost
}

/// Answers the open request for a file when nothing is kept any more.
pub fn refuse(shared: &SharedSession) {
    let q = &shared.session().request;
    if matches!(
        q.kind.load(Acquire),
        request::KEEP_FILE
            | request::HAND_FILE
            | request::FORGET_EVENT
            | request::NATIVE_CPUID
            | request::REFER
            | request::SETTLE
    ) {
        q.status.store(libc::EIO as u32, Relaxed);
        for a in &q.answer {
            a.store(0, Relaxed);
        }
        done(shared);
    }
}

/// Requests that were answered.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// How many requests were answered by this process.
pub(crate) fn answered() -> u64 {
    ANSWERED.load(Relaxed)
}

/// The open request is answered.
pub(crate) fn done(shared: &SharedSession) {
    let q = &shared.session().request;
    ANSWERED.fetch_add(1, Relaxed);
    q.kind.store(request::NONE, Release);
    futex::wake(&q.kind, 1);
}
