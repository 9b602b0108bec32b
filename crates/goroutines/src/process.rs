//! Starting Go programs, recorded or replayed.

use crate::cell::Cell;
use crate::log::{Replayed, Ring};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{set_parent_process_death_signal, Signal};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a replay that may take only so long is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// By which a program is told where its log is. It does not see it.
const VARIABLE: &str = "REPRISE_GOROUTINES";

/// What is in each program that can be recorded so; behind it, the version of what is shared.
const MARK: &[u8] = b"reprise goroutines ";
/// The version that is known.
const VERSION: &[u8] = b"0001";

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Built {
    /// Nothing that `reprise go` has built.
    Otherwise,
    /// It can be recorded.
    Known,
    /// By a Reprise of another version.
    Another,
}

/// How was this file built?
///
/// # Errors
/// When it can't be read.
pub fn built(program: &Path) -> io::Result<Built> {
    let mut file = File::open(program)?;
    let mut magic = [0; 4];
    if file.read(&mut magic)? < 4 || magic != *b"\x7fELF" {
        return Ok(Built::Otherwise);
    }
    // SAFETY: the file is only searched; if somebody changes it meanwhile, something else is found.
    let bytes = unsafe { memmap2::Mmap::map(&file)? };
    // Reprise itself has the mark in it, too.
    if !has_section(&bytes, b".go.buildinfo") {
        return Ok(Built::Otherwise);
    }
    let found = memchr::memmem::find_iter(&bytes, MARK).find_map(|at| {
        let version = bytes.get(at + MARK.len()..at + MARK.len() + VERSION.len())?;
        version
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| version == VERSION)
    });
    Ok(match found {
        None => Built::Otherwise,
        Some(true) => Built::Known,
        Some(false) => Built::Another,
    })
}

/// Has this ELF file (64 bits, little-endian) a section of this name? See elf(5).
fn has_section(file: &[u8], name: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let word = file.get(at..at.checked_add(bytes)?)?;
        let number = word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        usize::try_from(number).ok()
    };
    let all = || -> Option<bool> {
        let (table, size) = (number(0x28, 8)?, number(0x3a, 2)?);
        let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
        let header = |n: usize| table.checked_add(n.checked_mul(size)?);
        let strings = number(header(names)?.checked_add(0x18)?, 8)?;
        for n in 0..count {
            let at = strings.checked_add(number(header(n)?, 4)?)?;
            let found = file.get(at..)?.strip_prefix(name);
            if found.is_some_and(|rest| rest.first() == Some(&0)) {
                return Some(true);
            }
        }
        None
    };
    file.get(4..6) == Some(&[2, 1]) && all().unwrap_or(false)
}

/// Starts a program that writes to `ring`. If Reprise is killed, the program is as well: it could only wait for room in the ring.
///
/// # Errors
/// When it can't be started.
pub fn record(program: &Path, argv: &[impl AsRef<OsStr>], ring: &Ring) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg0(&argv[0]).args(&argv[1..]);
    let at = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        ring.shared().file().as_raw_fd()
    );
    command.env(VARIABLE, at);
    // SAFETY: a plain call in the child.
    unsafe { command.pre_exec(die_with_parent) };
    command.spawn()
}

fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A program that is replayed.
pub struct Replay<'a> {
    /// The program's file; it is copied, so that it need not be executable where it lies.
    pub program: &'a Path,
    /// Its arguments, ...
    pub argv: Vec<CString>,
    /// ... and its environment, as they were.
    pub env: Vec<CString>,
    /// Whether what it writes to its outputs is thrown away.
    pub quiet: bool,
    /// How long it may take.
    pub limit: Option<Duration>,
}

/// How a replayed process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself: the wait status.
    Itself(i32),
    /// It was killed, since it took too long.
    TimeLimit,
}

impl Replay<'_> {
    /// Runs it to its end.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn run(&self, log: &Replayed) -> io::Result<Ended> {
        let cell = Cell::new()?;
        let mut filter = Cell::filter();
        let mut copy = File::from(memfd_create(c"go-program", MemfdFlags::CLOEXEC)?);
        io::copy(&mut File::open(self.program)?, &mut copy)?;
        let (copy, shared) = (copy.as_raw_fd(), log.shared().file().as_raw_fd());
        let mut env = self.env.clone();
        env.push(CString::new(format!("{VARIABLE}=/proc/self/fd/{shared}"))?);
        let pointers = |strings: &[CString]| -> Vec<usize> {
            strings
                .iter()
                .map(|s| s.as_ptr() as usize)
                .chain([0])
                .collect()
        };
        let (argv, envp) = (pointers(&self.argv), pointers(&env));
        // The name is not used: the child becomes the program before that.
        let mut command = Command::new("/proc/self/exe");
        command.stdin(Stdio::null());
        if self.quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        // SAFETY: in the child there are system calls only.
        unsafe {
            command.pre_exec(move || {
                die_with_parent()?;
                // Nothing that Reprise was started with is the program's.
                libc::syscall(
                    libc::SYS_close_range,
                    3,
                    u32::MAX,
                    libc::CLOSE_RANGE_CLOEXEC,
                );
                libc::fcntl(shared, libc::F_SETFD, 0);
                cell.enter(&mut filter)?;
                libc::syscall(
                    libc::SYS_execveat,
                    copy,
                    c"".as_ptr(),
                    argv.as_ptr(),
                    envp.as_ptr(),
                    libc::AT_EMPTY_PATH,
                );
                Err(io::Error::last_os_error())
            });
        }
        let mut child = command.spawn()?;
        let Some(limit) = self.limit else {
            return Ok(Ended::Itself(child.wait()?.into_raw()));
        };
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ended::Itself(status.into_raw()));
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(Ended::TimeLimit);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A program's argument or variable as execve(2) takes it.
///
/// # Errors
/// When there is a NUL in it.
pub fn string(s: &OsStr) -> io::Result<CString> {
    Ok(CString::new(s.as_bytes())?)
}
