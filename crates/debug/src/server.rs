//! The connection: one debugger, from its first packet to its last.

use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::files::lay_out;
use crate::target::Session;
use crate::timeline::Timeline;
use crate::wire::Wire;
use crate::{os, DebugError};
use gdbstub::conn::{Connection, ConnectionExt};
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::stub::{GdbStub, MultiThreadStopReason};
use reprise_console::say;
use reprise_replay::Output;
use std::marker::PhantomData;
use std::net::TcpListener;
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
    let timeline = Rc::new(Timeline::of(&request.dir, request.birth)?);
    let debuggee = Debuggee::start(&request.dir, timeline, Output::default())?;
    let mut session = Session::new(debuggee);
    session.go_to_place(request.at)?;
    session.see_program()?;
    match &request.address {
        Address::Port(port) => {
            let listener =
                TcpListener::bind(("127.0.0.1", *port)).map_err(os("listen on the port"))?;
            let port = listener.local_addr().map_or(*port, |a| a.port());
            say!("waiting for a debugger: target remote localhost:{port}");
            let (stream, _) = listener.accept().map_err(os("wait for a debugger"))?;
            let _ = stream.set_nodelay(true);
            talk(stream, session)
        }
        Address::Socket(path) => {
            let d = session.debuggee()?;
            lay_out(&d.timeline, &d.dir, &path.with_file_name("root"))
                .map_err(os("lay out files for gdb"))?;
            let listener = listen(path).map_err(os("make a socket for gdb"))?;
            let (stream, _) = listener.accept().map_err(os("wait for gdb"))?;
            talk(stream, session)
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
    // SAFETY: no handler runs.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

/// What is answered to a packet that says nothing.
const NOT_KNOWN: &[u8] = b"$#00";

fn talk(
    connection: impl ConnectionExt<Error = std::io::Error>,
    mut session: Session,
) -> Result<(), DebugError> {
    let mut connection = Wire::new(connection, session.becomes(), session.asked());
    type AnyWire<'a> = &'a mut dyn ConnectionExt<Error = std::io::Error>;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let wire: AnyWire = &mut connection;
        let stub = GdbStub::builder(wire)
            .with_packet_buffer(&mut buffer)
            .build()
            .map_err(|_| DebugError::Refused("the debugger's connection can't be used".into()))?;
        let Err(e) = stub.run_blocking::<Loop<AnyWire>>(&mut session) else {
            return Ok(());
        };
        // A debugger that is gone is no failure of ours, and neither is one that sends nonsense.
        let gone = e.is_connection_error();
        if let Some(e) = e.into_target_error() {
            return Err(e);
        }
        if gone || connection.write_all(NOT_KNOWN).is_err() {
            return Ok(());
        }
    }
}

/// Between the debugger's packets and the replay.
struct Loop<C>(PhantomData<C>);

impl<C: ConnectionExt> BlockingEventLoop for Loop<C> {
    type Target = Session;
    type Connection = C;
    type StopReason = MultiThreadStopReason<u64>;

    fn wait_for_stop_reason(
        session: &mut Session,
        connection: &mut C,
    ) -> Result<Event<MultiThreadStopReason<u64>>, WaitForStopReasonError<DebugError, C::Error>>
    {
        // Whatever comes while the replay runs asks it to stop.
        let mut lost = None;
        let mut wanted = || match connection.peek() {
            Ok(byte) => byte.is_some(),
            Err(e) => {
                lost = Some(e);
                true
            }
        };
        let stop = session
            .go(&mut wanted)
            .map_err(WaitForStopReasonError::Target)?;
        match lost {
            Some(e) => Err(WaitForStopReasonError::Connection(e)),
            None if interrupted(&stop) && matches!(connection.peek(), Ok(Some(_))) => {
                let byte = connection.read();
                byte.map(Event::IncomingData)
                    .map_err(WaitForStopReasonError::Connection)
            }
            None => Ok(Event::TargetStopped(stop)),
        }
    }

    fn on_interrupt(
        session: &mut Session,
    ) -> Result<Option<MultiThreadStopReason<u64>>, DebugError> {
        session.reason(Stop::Interrupted).map(Some)
    }
}

fn interrupted(stop: &MultiThreadStopReason<u64>) -> bool {
    use gdbstub::common::Signal;
    matches!(stop, MultiThreadStopReason::SignalWithThread { signal, .. } if *signal == Signal::SIGINT)
}

impl Session {
    fn go_to_place(&mut self, place: Place) -> Result<(), DebugError> {
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
            Place::Crash | Place::End => loop {
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
                    return Ok(());
                }
            },
        }
    }
}
