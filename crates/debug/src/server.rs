//! The connection: one debugger, from its first packet to its last.

use crate::checkpoints;
use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::files::lay_out;
use crate::moving::Line;
use crate::peer;
use crate::rr::{invitation, told, AsRr};
use crate::target::{Goal, Session};
use crate::timeline::Timeline;
use crate::wire::{Heard, Wire};
use crate::{os, DebugError};
use gdbstub::conn::{Connection, ConnectionExt};
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{GdbStub, GdbStubError, MultiThreadStopReason};
use reprise_console::{say, say_text};
use reprise_launch::dispositions;
use reprise_replay::{marks, Output};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where in the recording to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// At the program's first instruction, or where the trace begins of which only the last stretch was kept.
    #[default]
    Start,
    /// Where it crashes.
    Crash,
    /// Where it ends.
    End,
    /// Where it panicked last, or threw the exception that nobody caught.
    Panic,
    /// Where so many events have happened.
    Event(u64),
    /// Where this event is the last of its thread.
    Behind(u64),
}

/// What is to be debugged, and for whom.
#[derive(Clone, Debug)]
pub struct Request {
    /// The trace.
    pub dir: PathBuf,
    /// Which of its processes, in the order of their births.
    pub birth: u32,
    /// Where to begin.
    pub at: Place,
    /// The address to serve.
    pub address: Address,
    /// What the program writes is not shown.
    pub unseen: bool,
    /// Before each piece of it stands by whom and when it was written.
    pub marks: bool,
    /// The server passes for rr's.
    pub as_rr: Option<AsRr>,
}

/// Where a debugger connects.
#[derive(Clone, Debug)]
pub enum Address {
    /// A port of this machine, for programs on this machine.
    Port(u16),
    /// A socket in the file system; the directory `root` beside it then holds the recording's files.
    Socket(PathBuf),
}

/// Debugs a trace for whoever connects first, until he leaves.
///
/// # Errors
/// When the trace can't be debugged, nobody can connect, or the replay leaves the recorded path.
pub fn serve(request: &Request) -> Result<(), DebugError> {
    ignore_interrupts();
    tracing::info!(dir = ?request.dir, birth = request.birth, "session");
    let timeline = Rc::new(Timeline::of(&request.dir, request.birth)?);
    let output = match (request.unseen, request.marks) {
        (true, _) => Output::unseen(),
        (false, true) => Output::marked(marks::of(&request.dir)?),
        (false, false) => Output::default(),
    };
    let from = match request.at {
        Place::Event(n) | Place::Behind(n) => timeline.kept_before(n),
        Place::Crash | Place::End => timeline.kept_before(timeline.end),
        Place::Start | Place::Panic => None,
    };
    let from = from.filter(|c| checkpoints::is_worth_a_start(c.after()));
    let debuggee = Debuggee::start(&request.dir, timeline, output, from)?;
    let mut session = Session::new(debuggee);
    session.debuggee()?.moving.begin(false);
    session.go_to_place(request.at)?;
    session.debuggee()?.moving.end();
    session.see_program()?;
    match &request.address {
        Address::Port(port) => {
            let listener =
                TcpListener::bind(("127.0.0.1", *port)).map_err(os("listen on the port"))?;
            let port = listener.local_addr().map_or(*port, |a| a.port());
            match &request.as_rr {
                Some(rr) => {
                    session.began = Goal::Event(session.debuggee()?.next_event());
                    let program = session.program_file()?;
                    say_text(&invitation(&rr.debugger, port, &program));
                }
                None => say!("waiting for a debugger: target remote localhost:{port}"),
            }
            loop {
                let stream = accept(&listener).map_err(os("wait for a debugger"))?;
                let _ = stream.set_nodelay(true);
                talk(stream, &mut session, request.as_rr.is_some())?;
                match &request.as_rr {
                    Some(rr) if rr.keeps_listening => session.is_left()?,
                    _ => return Ok(()),
                }
            }
        }
        Address::Socket(path) => {
            let d = session.debuggee()?;
            let (root, cwd) = (path.with_file_name("root"), &d.live.manifest().cwd.0);
            lay_out(&d.timeline, &d.dir, cwd, &root).map_err(os("lay out files for gdb"))?;
            let listener = listen(path).map_err(os("make a socket for gdb"))?;
            let (stream, _) = listener.accept().map_err(os("wait for gdb"))?;
            talk(stream, &mut session, false)
        }
    }
}

/// The first connection of somebody who may debug.
fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    loop {
        let (stream, _) = listener.accept()?;
        let user = peer::user(&stream);
        if peer::may_debug(user) {
            return Ok(stream);
        }
        match user {
            Some(user) => say!("a debugger of user {user} was turned away"),
            None => say!("a debugger was turned away: whose it is can't be known"),
        }
    }
}

/// Whoever finds the socket can connect to it at once.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let unready = path.with_extension("new");
    let listener = UnixListener::bind(&unready)?;
    std::fs::rename(&unready, path)?;
    Ok(listener)
}

/// Ctrl-C at the terminal is for gdb, which tells us.
fn ignore_interrupts() {
    dispositions::ignore(libc::SIGINT);
}

/// What is answered to a packet that says nothing.
const NOT_KNOWN: &[u8] = b"$#00";

fn talk(
    connection: impl ConnectionExt<Error = std::io::Error> + AsFd,
    session: &mut Session,
    as_rr: bool,
) -> Result<(), DebugError> {
    let fd = connection.as_fd().try_clone_to_owned();
    let line = Rc::new(Line::new(fd.map_err(os("use the connection"))?));
    session.debuggee()?.moving.has_line(Rc::clone(&line));
    let mut wire = Wire::new(
        connection,
        line,
        session.becomes(),
        session.asked(),
        session.here(),
    )
    .passing_for_rr(as_rr);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match serve_connection(&mut wire, session, &mut buffer) {
            Ok(()) | Err(Broken::Gone) => return Ok(()),
            Err(Broken::Target(e)) => return Err(e),
            // One that sends nonsense is no failure of ours.
            Err(Broken::Nonsense) => {
                if (&mut wire).write_all(NOT_KNOWN).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Why a connection can't be served any more.
enum Broken {
    /// The debugger is gone.
    Gone,
    /// It sends what nobody understands.
    Nonsense,
    /// The replay can't go on.
    Target(DebugError),
}

impl From<GdbStubError<DebugError, std::io::Error>> for Broken {
    fn from(e: GdbStubError<DebugError, std::io::Error>) -> Broken {
        let gone = e.is_connection_error();
        match e.into_target_error() {
            Some(e) => Broken::Target(e),
            None if gone => Broken::Gone,
            None => Broken::Nonsense,
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Broken {
        Broken::Gone
    }
}

impl From<DebugError> for Broken {
    fn from(e: DebugError) -> Broken {
        Broken::Target(e)
    }
}

/// Between the debugger's packets and the replay, until the debugger leaves.
fn serve_connection<C: ConnectionExt<Error = std::io::Error>>(
    wire: &mut Wire<C>,
    session: &mut Session,
    buffer: &mut [u8],
) -> Result<(), Broken> {
    let stub = GdbStub::builder(wire).with_packet_buffer(buffer).build();
    let stub =
        stub.map_err(|_| DebugError::Refused("the debugger's connection can't be used".into()))?;
    let mut machine = stub.run_state_machine(session)?;
    loop {
        machine = match machine {
            GdbStubStateMachine::Idle(mut gdb) => match gdb.borrow_conn().hear()? {
                Heard::Byte(byte) => gdb.incoming_data(session, byte)?,
                Heard::Ours(packet) => {
                    let answer = session.answer(&packet)?;
                    tracing::debug!(packet = ?packet.escape_ascii().to_string(), answer = answer.len(), "packet");
                    gdb.borrow_conn().answer(&answer)?;
                    gdb.into()
                }
            },
            GdbStubStateMachine::Running(mut gdb) => match run(session, gdb.borrow_conn())? {
                Ran::Stopped(stop) => gdb.report_stop(session, stop)?,
                Ran::Heard(byte) => gdb.incoming_data(session, byte)?,
            },
            GdbStubStateMachine::CtrlCInterrupt(gdb) => {
                let stop = session.reason(Stop::Interrupted)?;
                gdb.interrupt_handled(session, Some(stop))?
            }
            GdbStubStateMachine::Disconnected(_) => return Ok(()),
        };
    }
}

/// What came of a motion.
enum Ran {
    Stopped(MultiThreadStopReason<u64>),
    /// The debugger has said this.
    Heard(u8),
}

/// Makes the motion that the debugger has asked for.
fn run<C: ConnectionExt<Error = std::io::Error>>(
    session: &mut Session,
    wire: &mut Wire<C>,
) -> Result<Ran, Broken> {
    // Whatever comes while the replay runs asks it to stop.
    let mut lost = false;
    let mut wanted = || match wire.peek() {
        Ok(byte) => byte.is_some(),
        Err(_) => {
            lost = true;
            true
        }
    };
    let stop = session.go(&mut wanted)?;
    let stop = match wire.is_rr() {
        true => told(stop),
        false => stop,
    };
    if lost {
        return Err(Broken::Gone);
    }
    if interrupted(&stop) && matches!(wire.peek(), Ok(Some(_))) {
        if let Heard::Byte(byte) = wire.hear()? {
            return Ok(Ran::Heard(byte));
        }
    }
    Ok(Ran::Stopped(stop))
}

fn interrupted(stop: &MultiThreadStopReason<u64>) -> bool {
    use gdbstub::common::Signal;
    matches!(stop, MultiThreadStopReason::SignalWithThread { signal, .. } if *signal == Signal::SIGINT)
}

impl Session {
    pub(crate) fn go_to_place(&mut self, place: Place) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let (end, signal, all) = (d.timeline.end, d.timeline.signal, d.timeline.len());
        match place {
            Place::Start => Ok(()),
            Place::Event(n) if n > all => Err(DebugError::Refused(format!(
                "the recording has {all} events, no event {n}"
            ))),
            Place::Event(n) => match self.out_of_reach(n)? {
                Some(why) => Err(DebugError::Refused(why)),
                None => self.run_to_event(n, &mut || false),
            },
            Place::Behind(n) => match self.out_of_reach(n)? {
                Some(why) => Err(DebugError::Refused(why)),
                None => self.run_behind(n),
            },
            Place::Crash if signal == 0 => Err(DebugError::Refused(
                "the recorded program did not crash: --at end leads to its end".into(),
            )),
            Place::Crash | Place::End => {
                self.jump_towards(end)?;
                self.go_to_end(end)
            }
            Place::Panic => self.go_to_panic(),
        }
    }

    fn go_to_end(&mut self, end: u64) -> Result<(), DebugError> {
        loop {
            let stop = self.forward(|d, end, wanted| d.go_far(end, wanted), &mut || false)?;
            let d = self.debuggee()?;
            let last = match stop {
                // Of a fault there is an event to come, of a call that kills there was one.
                Stop::Signal(slot, _) => {
                    let fault = d.next_fault(slot);
                    fault.is_some_and(|f| f.1) || d.live.is_over() || d.events() >= end
                }
                _ => false,
            };
            if last || matches!(stop, Stop::Limit | Stop::Ended(_)) {
                self.stands(stop);
                return Ok(());
            }
        }
    }
}
