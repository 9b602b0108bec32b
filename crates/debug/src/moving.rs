//! What passes between us and the debugger while the replay moves: whether it wants to be heard, and lines that it shows to its user.
//!
//! Forward, a motion asks its caller whether to go on. The ways back and the ways to a place are made of many motions, which nobody watches:
//! they look here.

use crate::debuggee::Debuggee;
use crate::wire::packet_of;
use crate::DebugError;
use rustix::io::Errno;
use rustix::net::{recv, send, RecvFlags, SendFlags};
use std::cell::Cell;
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// After this time its user is told how far a motion is, ...
const FIRST_LINE: Duration = Duration::from_secs(1);
/// ... and then each time when it has taken so many times as long; on a terminal, where there is one line, after this time each.
const LONGER: u32 = 2;
/// The way back to where a motion began may take so long, when it was given up.
pub(crate) const WAY_HOME: Duration = Duration::from_secs(2);
/// Ends a line of a terminal that was written once.
const WIPE: &str = "\r\x1b[K";

/// The connection, beside the packets on it.
pub(crate) struct Line {
    connection: OwnedFd,
    /// gdb no longer answers each packet with a byte, which would be taken for its wish to be heard.
    pub talks: Cell<bool>,
}

impl Line {
    pub fn new(connection: OwnedFd) -> Line {
        Line {
            connection,
            talks: Cell::new(false),
        }
    }

    /// Has the debugger said something, or is it gone?
    fn has_word(&self) -> bool {
        let mut byte = [0u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.connection, &mut byte, flags) != Err(Errno::WOULDBLOCK)
    }

    /// Has gdb show this, which it does only while it waits for a motion's end.
    pub fn show(&self, text: &str) {
        if !self.talks.get() {
            return;
        }
        let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
        let packet = packet_of(format!("O{hex}").as_bytes());
        // A line that is lost is no harm: who is gone is found out when it is to be answered.
        let _ = send(&self.connection, &packet, SendFlags::NOSIGNAL);
    }
}

/// How long a motion may take.
#[derive(Clone, Copy, Default)]
enum Patience {
    /// Its caller says so.
    #[default]
    Endless,
    /// Until the debugger says anything.
    UntilHeard,
    Until(Instant),
}

/// The motion that is made.
#[derive(Default)]
pub(crate) struct Moving {
    line: Option<Rc<Line>>,
    patience: Patience,
    given_up: Cell<bool>,
    begun: Option<Instant>,
    /// When its user is told next.
    next_line: Option<Instant>,
    has_told: bool,
}

impl Moving {
    pub fn has_line(&mut self, line: Rc<Line>) {
        self.line = Some(line);
    }

    /// A motion begins; one that can be `given_up` looks itself whether the debugger wants to be heard.
    pub fn begin(&mut self, can_be_given_up: bool) {
        let now = Instant::now();
        self.patience = match can_be_given_up && self.line.is_some() {
            true => Patience::UntilHeard,
            false => Patience::Endless,
        };
        self.given_up.set(false);
        self.begun = Some(now);
        self.next_line = Some(now + FIRST_LINE);
    }

    /// It was given up: what is made now may take so long.
    pub fn hurry(&mut self, time: Duration) {
        self.patience = Patience::Until(Instant::now() + time);
        self.given_up.set(false);
    }

    /// It is over.
    pub fn end(&mut self) {
        self.patience = Patience::Endless;
        self.begun = None;
        if std::mem::take(&mut self.has_told) && is_terminal() {
            match &self.line {
                Some(line) => line.show(WIPE),
                None => eprint_quietly(WIPE),
            }
        }
    }

    pub fn is_given_up(&self) -> bool {
        let now = match self.patience {
            Patience::Endless => false,
            Patience::UntilHeard => self.line.as_ref().is_some_and(|l| l.has_word()),
            Patience::Until(end) => Instant::now() >= end,
        };
        self.given_up.set(self.given_up.get() | now);
        self.given_up.get()
    }

    /// Tells the user something about the motion that is over.
    pub fn say(&self, text: &str) {
        if let Some(line) = &self.line {
            line.show(&format!("reprise: {text}\n"));
        }
    }

    /// Is it time to tell how far it is?
    fn is_line_due(&self) -> bool {
        self.begun.is_some() && self.next_line.is_some_and(|at| Instant::now() >= at)
    }

    fn tell(&mut self, event: u64, all: u64) {
        let Some(begun) = self.begun else { return };
        let took = begun.elapsed();
        let text = format!(
            "reprise: at event {event} of {all}, after {} s",
            took.as_secs()
        );
        let terminal = is_terminal();
        match (&self.line, terminal) {
            (Some(line), true) => line.show(&format!("\r{text}\x1b[K")),
            (Some(line), false) => line.show(&format!("{text}\n")),
            (None, true) => eprint_quietly(&format!("\r{text}\x1b[K")),
            (None, false) => {}
        }
        self.has_told = true;
        let next = match terminal {
            true => took + FIRST_LINE,
            false => took * LONGER,
        };
        self.next_line = Some(begun + next);
    }
}

/// Do we and gdb have one?
fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Nobody has to read it.
fn eprint_quietly(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Debuggee {
    /// In the midst of a motion: tells its user how far it is, when that takes long. Is it given up?
    pub(crate) fn look_up(&mut self) -> bool {
        if self.moving.is_line_due() {
            let (event, all) = (self.next_event(), self.timeline.len());
            self.moving.tell(event, all);
        }
        self.moving.is_given_up()
    }

    /// Ends a motion that is given up.
    ///
    /// # Errors
    /// When it is.
    pub(crate) fn go_on_if_wanted(&mut self) -> Result<(), DebugError> {
        match self.look_up() {
            true => {
                self.look_out_no_more()?;
                Err(DebugError::GivenUp)
            }
            false => Ok(()),
        }
    }
}
