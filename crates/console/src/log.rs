//! The log: what Reprise's own processes do, told as they go along to whom asks for it. `REPRISE_LOG` says of what and how much
//! (`agent=debug,replay::tree=trace`, or a level for all), `REPRISE_LOG_FILE` where to, if not to the standard error. Without the first one
//! there is no log, and a place that could tell something costs a load and a branch.
//!
//! - **It holds up nobody.** The recorded program waits for who writes here, and whoever reads the standard error may wait for the program.
//!   A line that can't be written at once is lost, and the next one that goes says how many were.
//! - **It has a descriptor of its own** to what the standard error was when this process began: `verify` has another one in the meantime.
//!   Who leaves the standard error leaves that as well ([`leave`]), or a pipe would not see its end.
//! - **A line is one write(2)** of at most [`LONGEST`] bytes, so that lines of several processes don't mix.
//! - **No child says anything between fork(2) and its exec**, or its jump into the runtime; nor does the runtime itself.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fstat, FileType, OFlags};
use rustix::io::{fcntl_dupfd_cloexec, pwritev2, Errno, ReadWriteFlags};
use rustix::stdio::stderr;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicU8, Ordering::*};
use std::time::Instant;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// Whose log it is, and what is told of it.
const FILTER: &str = "REPRISE_LOG";
/// The file that lines are appended to.
const FILE: &str = "REPRISE_LOG_FILE";
/// The crates that have something to tell, as the user names them.
const CRATES: [&str; 4] = ["launch", "agent", "replay", "debug"];
/// What the crates' own names begin with.
const PREFIX: &str = "reprise_";
/// Longest line, in bytes: what a pipe takes in one piece (PIPE_BUF, pipe(7)).
const LONGEST: usize = 4096;
/// The log's descriptor is none of those that programs count on.
const LOWEST_FD: RawFd = 10;
/// No descriptor.
const NONE: RawFd = -1;

/// Where lines go.
static OUT: AtomicI32 = AtomicI32::new(NONE);
/// It is [`FILE`], which is not left with the standard error.
static IS_OWN_FILE: AtomicBool = AtomicBool::new(false);
/// Lines that were lost and not told of yet.
static LOST: AtomicU64 = AtomicU64::new(0);
static ROLE: AtomicU8 = AtomicU8::new(Role::Command as u8);

/// What a process of Reprise's is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// The command itself: launcher, or driver of a replay.
    Command,
    /// Beside a recorded program.
    Agent,
    /// The flight recorder's.
    Follower,
    /// A debugger's.
    Server,
}

impl Role {
    const ALL: [(Role, &'static str); 4] = [
        (Role::Command, "reprise"),
        (Role::Agent, "agent"),
        (Role::Follower, "follower"),
        (Role::Server, "server"),
    ];

    fn name() -> &'static str {
        let now = ROLE.load(Relaxed);
        let found = Role::ALL.iter().find(|(role, _)| *role as u8 == now);
        found.map_or("?", |(_, name)| name)
    }
}

/// Begins the log, if the environment wants one. To be called before anything is forked. What is wrong with a filter is said, and there is no log.
pub fn begin() {
    let wanted = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(text) = wanted(FILTER) else {
        return;
    };
    let targets = match targets(&text.to_string_lossy()) {
        Ok(targets) => targets,
        Err(why) => return crate::say!("{FILTER} is ignored: {why}"),
    };
    let file = wanted(FILE);
    let opened = match &file {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            file.and_then(|file| set_aside(file.as_fd()))
        }
        None if crate::was_closed(libc::STDERR_FILENO) => return,
        None => set_aside(stderr()),
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(e) => return crate::say!("there is no log: {FILE} can't be written: {e}"),
    };
    OUT.store(fd.into_raw_fd(), Relaxed);
    IS_OWN_FILE.store(file.is_some(), Relaxed);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Line {
            begun: Instant::now(),
        })
        .with_ansi(false)
        .with_writer(|| Out)
        // Else errors of the writer are told by eprintln!.
        .log_internal_errors(false);
    let log = tracing_subscriber::registry().with(lines).with(targets);
    // It fails when there is one already.
    let _ = tracing::subscriber::set_global_default(log);
}

/// After a fork: what this process is for from now on.
pub fn is(role: Role) {
    ROLE.store(role as u8, Relaxed);
}

/// The standard error is left, and so is its copy. A file stays.
pub fn leave() {
    if IS_OWN_FILE.load(Relaxed) {
        return;
    }
    let fd = OUT.swap(NONE, Relaxed);
    if fd >= 0 {
        // SAFETY: ours, and nobody finds it any more.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Another descriptor for the same file, pipe or terminal: in nobody's way, gone after an exec, and such that writing there does not wait for a
/// reader. O_NONBLOCK belongs to the open file, which is the program's as well, so it is opened once more, where that can be done.
fn set_aside(fd: BorrowedFd) -> io::Result<OwnedFd> {
    let nonblocking = libc::O_NONBLOCK | libc::O_NOCTTY;
    let again = match is_regular(fd) {
        // It would begin at its start.
        true => None,
        false => File::options()
            .write(true)
            .custom_flags(nonblocking)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .ok(),
    };
    let from = again.as_ref().map_or(fd, File::as_fd);
    Ok(fcntl_dupfd_cloexec(from, LOWEST_FD)?)
}

/// What is to be told: of names that are separated by commas, each with a level (`agent=debug`) or all of it (`agent`), and of all others a level.
fn targets(text: &str) -> Result<Targets, String> {
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, level) = match part.split_once('=') {
            Some((name, level)) => (name, level.parse().map_err(|_| no_level(level))?),
            None => match part.parse::<LevelFilter>() {
                Ok(level) => {
                    targets = targets.with_default(level);
                    continue;
                }
                Err(_) => (part, LevelFilter::TRACE),
            },
        };
        let of = name.split("::").next().unwrap_or(name);
        if !CRATES.contains(&of) {
            let known = CRATES.join(", ");
            return Err(format!(
                "{of:?} has no log; {known} have, and their modules (agent::slices)"
            ));
        }
        targets = targets.with_target(format!("{PREFIX}{name}"), level);
    }
    Ok(targets)
}

fn no_level(level: &str) -> String {
    format!("{level:?} is no level; off, error, warn, info, debug and trace are")
}

/// `  0.001234 agent 4711 DEBUG agent::slices: asks for a cut holder=3 held=8.012ms`
struct Line {
    begun: Instant,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        let target = about.target();
        write!(
            to,
            "{:>10.6} {} {} {:>5} {}: ",
            self.begun.elapsed().as_secs_f64(),
            Role::name(),
            std::process::id(),
            about.level(),
            target.strip_prefix(PREFIX).unwrap_or(target)
        )?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// The log's descriptor. It gets a line at a time.
struct Out;

impl Write for Out {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let fd = OUT.load(Relaxed);
        if fd != NONE {
            write_or_lose(fd, line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line, behind one that says how many were lost before it.
fn write_or_lose(fd: RawFd, line: &[u8]) {
    let lost = LOST.swap(0, Relaxed);
    let mut all = match lost {
        0 => Vec::new(),
        n => format!("({n} lines of the log were lost here)\n").into_bytes(),
    };
    all.extend_from_slice(line);
    if all.len() > LONGEST {
        all.truncate(LONGEST - 1);
        all.push(b'\n');
    }
    if !write_at_once(fd, &all) {
        LOST.fetch_add(lost + 1, Relaxed);
    }
}

/// The offset of pwritev2(2) that means the file's own position.
const AT_POSITION: u64 = u64::MAX;

/// Writes bytes, if that takes no waiting for a reader.
fn write_at_once(fd: RawFd, bytes: &[u8]) -> bool {
    // SAFETY: it is open for as long as anything is logged, or what is written on it fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_whole = |written: rustix::io::Result<usize>| written == Ok(bytes.len());
    if !is_regular(fd) && !is_nonblocking(fd) {
        // What can't be opened once more: sockets, and terminals and pipes of other users.
        let part = [IoSlice::new(bytes)];
        let written = pwritev2(fd, &part, AT_POSITION, ReadWriteFlags::NOWAIT);
        let unknown = [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS];
        if !written.is_err_and(|errno| unknown.contains(&errno)) {
            return is_whole(written);
        }
        // Terminals, and pipes before Linux 6.4. There somebody else may fill it behind this question.
        let mut ready = [PollFd::new(&fd, PollFlags::OUT)];
        let polled = poll(&mut ready, Some(&Timespec::default()));
        if polled != Ok(1) || !ready[0].revents().contains(PollFlags::OUT) {
            return false;
        }
    }
    is_whole(rustix::io::write(fd, bytes))
}

/// Is it an open file of our own, on which writes don't wait ([`set_aside`])?
fn is_nonblocking(fd: BorrowedFd) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Is it a file on a disk, which has no reader to be waited for?
fn is_regular(fd: BorrowedFd) -> bool {
    fstat(fd).is_ok_and(|about| FileType::from_raw_mode(about.st_mode).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};
    use std::os::unix::net::UnixStream;
    use tracing::Level;

    #[test]
    fn names_and_levels_are_read() {
        let t = targets("warn, agent=debug,replay::tree").expect("is right");
        assert!(t.would_enable("reprise_agent", &Level::DEBUG));
        assert!(t.would_enable("reprise_agent::slices", &Level::DEBUG));
        assert!(!t.would_enable("reprise_agent::slices", &Level::TRACE));
        assert!(t.would_enable("reprise_replay::tree", &Level::TRACE));
        assert!(t.would_enable("reprise_replay::feed", &Level::WARN));
        assert!(!t.would_enable("reprise_replay::feed", &Level::INFO));
        let none = targets("agent=off,").expect("is right");
        assert!(!none.would_enable("reprise_agent", &Level::ERROR));
    }

    #[test]
    fn what_is_no_filter_is_told() {
        for (text, wanted) in [
            ("agnet=debug", "\"agnet\" has no log"),
            ("agent=loud", "\"loud\" is no level"),
            ("debug,runtime", "\"runtime\" has no log"),
            ("agent[span]=debug", "\"agent[span]\" has no log"),
        ] {
            let why = targets(text).expect_err(text);
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }

    /// Writes long lines until one is lost, which takes no time whatever it is that nobody reads; how many went.
    fn fill(fd: RawFd) -> usize {
        LOST.store(0, Relaxed);
        let mut sent = 0;
        while LOST.load(Relaxed) == 0 {
            write_or_lose(fd, &[b'x'; 2 * LONGEST]);
            sent += 1;
            assert!(sent < 100_000, "lines that nobody reads find room");
        }
        sent - 1
    }

    /// A terminal: whose side it is, and the program's.
    fn terminal() -> [OwnedFd; 2] {
        let (mut outer, mut inner) = (NONE, NONE);
        let null = std::ptr::null_mut();
        // SAFETY: two new descriptors, owned from here on.
        unsafe {
            let opened = libc::openpty(&mut outer, &mut inner, null, null.cast(), null.cast());
            assert_eq!(opened, 0, "a terminal");
            [outer, inner].map(|fd| OwnedFd::from_raw_fd(fd))
        }
    }

    /// All that concerns [`LOST`] is in one test: there is one of it.
    #[test]
    fn a_line_that_can_not_go_is_lost_and_counted() {
        let (mut reader, writer) = pipe().expect("a pipe");
        // Its open file is somebody else's, too, and is left as it is.
        let sent = fill(writer.as_raw_fd());
        assert!(sent > 0, "a line fits into a pipe");
        write_or_lose(writer.as_raw_fd(), b"lost\n");
        assert_eq!(LOST.load(Relaxed), 2);
        let mut page = [0; LONGEST];
        reader.read_exact(&mut page).expect("a line");
        assert_eq!(page[LONGEST - 2..], *b"x\n", "a long line is cut");
        write_or_lose(writer.as_raw_fd(), b"goes\n");
        assert_eq!(LOST.load(Relaxed), 0);
        assert!(!is_nonblocking(writer.as_fd()));
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("the rest");
        assert!(rest.ends_with("x\n(2 lines of the log were lost here)\ngoes\n"));

        let (reader, writer) = pipe().expect("a pipe");
        let aside = set_aside(writer.as_fd()).expect("once more");
        assert!(aside.as_raw_fd() >= LOWEST_FD && is_nonblocking(aside.as_fd()));
        assert!(!is_nonblocking(writer.as_fd()));
        assert!(fill(aside.as_raw_fd()) > 0);
        // A reader that is gone: SIGPIPE is ignored by Rust's programs.
        drop(reader);
        assert_eq!(fill(aside.as_raw_fd()), 0);

        let [_outer, inner] = terminal();
        let aside = set_aside(inner.as_fd()).expect("once more");
        assert!(is_nonblocking(aside.as_fd()) && !is_nonblocking(inner.as_fd()));
        fill(aside.as_raw_fd());
        let (near, _far) = UnixStream::pair().expect("sockets");
        let aside = set_aside(near.as_fd()).expect("a copy");
        assert!(!is_nonblocking(aside.as_fd()));
        assert!(fill(aside.as_raw_fd()) > 0);
        LOST.store(0, Relaxed);
    }

    #[test]
    fn a_file_is_gone_on_with_where_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"before\n").expect("written");
        let aside = set_aside(file.as_fd()).expect("a copy");
        assert!(write_at_once(aside.as_raw_fd(), b"a line\n"));
        file.write_all(b"behind\n").expect("written");
        let all = std::fs::read_to_string(&path).expect("read");
        assert_eq!(all, "before\na line\nbehind\n");
    }

    #[test]
    fn all_roles_have_a_name() {
        for (i, (role, _)) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, i);
        }
    }
}
