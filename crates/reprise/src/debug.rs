//! `replay -d`: a server over the replay in a process of its own, and gdb connected to it.

use crate::cli::{At, ReplayArgs};
use crate::printers;
use crate::processes::{ProcessName, Processes};
use crate::stretches;
use anyhow::{Context, Result};
use reprise_console::log::{self, Role};
use reprise_console::say;
use reprise_debug::monitor::COMMANDS;
use reprise_debug::server::Address;
use reprise_debug::{serve, DebugError, Place, Request};
use reprise_launch::dispositions;
use reprise_replay::ReplayError;
use reprise_trace::{Catalog, Manifest};
use rustix::process::{set_parent_process_death_signal, Signal};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Has gdb find the scripts that show values of libraries as people write them.
const AUTO_LOAD: &str = include_str!("auto_load.py");
/// Between two looks whether the server is ready.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `replay -d`; the exit status is gdb's.
///
/// # Errors
/// When the trace can't be debugged, or gdb can't be started.
pub fn run(args: &ReplayArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let at = place(args.at.as_ref(), &dir, Place::Start)?;
    let birth = match args.gdb_process {
        Some(birth) => birth,
        None => birth(args.pid, at, &dir)?,
    };
    let address = match (args.gdb_port, &args.gdb_socket) {
        (Some(port), _) => Address::Port(port),
        (None, Some(path)) => Address::Socket(path.clone()),
        (None, None) => {
            return with_gdb(&Session {
                dir: &dir,
                birth,
                at,
                arguments: args.gdb.clone(),
                answer: None,
                limit: None,
                given_up: None,
                debugger: args.debugger.as_deref(),
                unseen: args.gdb_unseen,
                marks: args.marks,
            })
        }
    };
    let request = Request {
        dir,
        birth,
        at,
        address,
        unseen: args.gdb_unseen,
        marks: args.marks,
        as_rr: args.as_rr.clone(),
    };
    log::is(Role::Server);
    match serve(&request) {
        // A report of many lines.
        Err(left @ (DebugError::Diverged(_) | DebugError::Replay(ReplayError::Stuck(_)))) => {
            say!("{left}");
            if let Some(why) = crate::play::about_redaction(&request.dir) {
                say!("{why}");
            }
            Err(crate::exit::AlreadySaid.into())
        }
        served => Ok(served.map(|()| 0)?),
    }
}

/// Which process of a trace is meant, in the order of their births. Where none is named, that is the first one; or, where it crashed or panicked
/// is asked for, the one that did so first.
///
/// # Errors
/// When there is none of this name.
pub fn birth(named: Option<ProcessName>, at: Place, dir: &Path) -> Result<u32> {
    let asks = matches!(at, Place::Crash | Place::Panic);
    if named.is_none() && !asks {
        return Ok(0);
    }
    let processes = Processes::of_trace(dir)?.0;
    let found = match named {
        Some(name) => processes.named(name)?,
        None => processes.crashed(at == Place::Panic).unwrap_or(0),
    };
    if named.is_none() && found != 0 {
        let pid = processes.list[found].pid;
        let _ = writeln!(
            std::io::stderr(),
            "reprise: this is process {pid}, which ended that way (--pid names others; see `reprise ps`)"
        );
    }
    Ok(found as u32)
}

/// The place that is meant.
///
/// # Errors
/// When the program has named no such stretch.
pub fn place(at: Option<&At>, dir: &Path, usual: Place) -> Result<Place> {
    Ok(match at {
        None => usual,
        Some(At::Place(place)) => *place,
        Some(At::Stretch(name)) => Place::Behind(stretches::beginning_of(name, dir)?),
    })
}

/// A session of gdb.
pub struct Session<'a> {
    /// The trace.
    pub dir: &'a Path,
    /// Which of its processes, in the order of their births.
    pub birth: u32,
    /// Where it begins.
    pub at: Place,
    /// Arguments for gdb.
    pub arguments: Vec<OsString>,
    /// A file for what a script has to tell; nothing else that is said is shown then.
    pub answer: Option<&'a Path>,
    /// The longest time that it may take.
    pub limit: Option<Duration>,
    /// Becomes true when nobody wants to know more: it is ended then.
    pub given_up: Option<&'a AtomicBool>,
    /// What is started in gdb's place.
    pub debugger: Option<&'a OsStr>,
    /// What the program writes is not shown.
    pub unseen: bool,
    /// It is shown with marks.
    pub marks: bool,
}

impl Session<'_> {
    /// Arguments for a gdb that only runs a script.
    ///
    /// # Errors
    /// When the script can't be written.
    pub fn script(room: &Path, text: &str) -> Result<Vec<OsString>> {
        let path = room.join("script.py");
        std::fs::write(&path, text).context("write a script for gdb")?;
        let mut source = OsString::from("source ");
        source.push(path);
        Ok(["-nx".into(), "-batch".into(), "-ex".into(), source].to_vec())
    }
}

/// Starts a server and gdb, and waits for both; gdb's exit status.
///
/// # Errors
/// When one of them can't be started.
pub fn with_gdb(session: &Session) -> Result<i32> {
    let rooms = tempfile::tempdir().context("make a directory for gdb's socket")?;
    let socket = rooms.path().join("gdb");
    let begun = Instant::now();
    let server = server(session, &socket)?.spawn();
    let mut server = server.context("start the replay")?;
    while !socket.exists() {
        if let Some(status) = server.try_wait().context("wait for the replay")? {
            return Ok(status.code().unwrap_or(crate::exit::OWN_FAILURE));
        }
        if let Some(limit) = session.limit.filter(|limit| begun.elapsed() >= *limit) {
            return Err(took_too_long(&mut [&mut server], limit));
        }
        std::thread::sleep(LOOK);
    }
    ignore_interrupts();
    let gdb = gdb(&socket, session)?
        .spawn()
        .context("start gdb, which must be installed (or use replay -d --gdb-port)");
    let mut gdb = match gdb {
        Ok(gdb) => gdb,
        Err(e) => {
            let _ = server.kill();
            let _ = server.wait();
            return Err(e);
        }
    };
    while session.limit.is_some() || session.given_up.is_some() {
        if gdb.try_wait().context("wait for gdb")?.is_some() {
            break;
        }
        if let Some(limit) = session.limit.filter(|limit| begun.elapsed() >= *limit) {
            return Err(took_too_long(&mut [&mut gdb, &mut server], limit));
        }
        if session.given_up.is_some_and(|g| g.load(Relaxed)) {
            end(&mut [&mut gdb, &mut server]);
            break;
        }
        std::thread::sleep(LOOK);
    }
    let status = gdb.wait().context("wait for gdb")?;
    let _ = server.wait();
    Ok(status.code().unwrap_or(crate::exit::OWN_FAILURE))
}

/// Ends a session that has come to its limit of time.
fn took_too_long(all: &mut [&mut Child], limit: Duration) -> anyhow::Error {
    end(all);
    let seconds = limit.as_secs();
    anyhow::anyhow!("the replay was ended after {seconds} s, before it came to its place")
}

fn end(all: &mut [&mut Child]) {
    for child in all {
        // What it replays ends with it.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The server of a session, which listens on this socket.
///
/// # Errors
/// When this program is not found.
pub fn server(session: &Session, socket: &Path) -> Result<Command> {
    let me = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(me);
    command.args([OsStr::new("replay"), OsStr::new("-d")]);
    command.arg("--gdb-socket").arg(socket);
    command.arg("--gdb-process").arg(session.birth.to_string());
    command.arg("--at").arg(word_for(session.at));
    command.stdin(Stdio::null());
    if session.answer.is_some() || session.unseen {
        command.arg("--gdb-unseen").stdout(Stdio::null());
    }
    if session.marks {
        command.arg("--gdb-marks");
    }
    command.arg(session.dir);
    // SAFETY: plain call in the child. Nobody else would end a server whose command was killed.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    Ok(command)
}

/// A place as `--at` takes it.
pub fn word_for(place: Place) -> String {
    match place {
        Place::Start => "start".into(),
        Place::Crash => "crash".into(),
        Place::End => "end".into(),
        Place::Panic => "panic".into(),
        Place::Event(n) => n.to_string(),
        Place::Behind(n) => format!("behind:{n}"),
    }
}

/// The program of a trace, where the server has laid out its files.
fn program_of(dir: &Path, root: &Path) -> Option<PathBuf> {
    let manifest = Manifest::read(dir).ok()?;
    // It may have been named from where the recording began.
    let exe = Path::new(&manifest.cwd.to_string()).join(manifest.exe.to_string());
    // A symbolic link of the system's own, as /bin is, is no part of a name in the trace.
    let name = exe.canonicalize().unwrap_or(exe);
    Some(root.join(name.strip_prefix("/").ok()?))
}

/// Ctrl-C at the terminal is for gdb.
fn ignore_interrupts() {
    dispositions::ignore(libc::SIGINT);
}

/// The gdb of a session whose server listens on this socket. Files come out of the trace, as the server has laid them out.
///
/// # Errors
/// When what it is told to begin with can't be written beside the socket.
pub fn gdb(socket: &Path, session: &Session) -> Result<Command> {
    let mut command = Command::new(session.debugger.unwrap_or(OsStr::new("gdb")));
    command.arg("-q");
    for (name, text) in [("commands", COMMANDS), ("auto-load.py", AUTO_LOAD)] {
        let script = socket.with_file_name(name);
        std::fs::write(&script, text).context("write commands for gdb")?;
        command.arg("-x").arg(script);
    }
    if let Some(program) = program_of(session.dir, &socket.with_file_name("root")) {
        printers::load(&mut command, &program);
        command.env("REPRISE_PROGRAM", &program);
    }
    let mut target = OsString::from("target remote ");
    target.push(socket);
    let files = socket.with_file_name("root");
    let mut root = OsString::from("set sysroot ");
    root.push(&files);
    for line in [
        root.as_os_str(),
        OsStr::new("set remotetimeout 600"),
        &target,
    ] {
        command.arg("-ex").arg(line);
    }
    command.args(&session.arguments);
    command.env("REPRISE_ROOT", &files);
    if let Some(answer) = session.answer {
        command.env("REPRISE_ANSWER", answer);
        let nothing = [Stdio::null(), Stdio::null(), Stdio::null()];
        let [input, output, errors] = nothing;
        command.stdin(input).stdout(output).stderr(errors);
    }
    // SAFETY: plain call in the child.
    unsafe {
        command.pre_exec(|| {
            dispositions::restore_default(libc::SIGINT);
            Ok(())
        })
    };
    Ok(command)
}
