//! What gdb and the crate `gdbstub` don't tell each other.
//!
//! - The debugged process becomes another program, or is again what it was before: `exec:NAME` in a stop reply. gdb then reads the new program's
//!   symbols, forgets the old one's threads and sets its breakpoints anew.
//! - Conditions of breakpoints: gdb is told that they are evaluated here, and then sends them with each breakpoint, as agent expressions.
//! - Packets that the crate doesn't know are kept from it, and answered by us ([`crate::packets`]).

use crate::breakpoints::Conditions;
use crate::expression::Expression;
use crate::moving::Line;
use crate::packets::is_ours;
use crate::rr;
use gdbstub::conn::{Connection, ConnectionExt};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;

/// The file of the program that the next stop is to tell of.
pub(crate) type Becomes = Rc<RefCell<Option<Vec<u8>>>>;
/// The conditions of the breakpoint that gdb has just asked for.
pub(crate) type Asked = Rc<RefCell<Conditions>>;

/// The signal at which the program stands, as gdb counts.
pub(crate) type Here = Rc<Cell<u8>>;

/// What follows a packet's body: `#` and two digits.
const TAIL: usize = 3;
/// Most bytes of a packet that is looked at.
const MOST_ASKED: usize = 1 << 16;
/// Begins the answer to the question what is supported here.
const SUPPORTED: &[u8] = b"PacketSize=";
const MORE_SUPPORTED: &[u8] = b";ConditionalBreakpoints+;qXfer:siginfo:read+";
/// Asks why the program stands, ...
const WHY: &[u8] = b"?";
/// ... which the crate answers as if it had been stopped by a breakpoint.
const STOPPED: &[u8] = b"T05";

/// After this packet nobody acknowledges packets any more.
const NO_ACKNOWLEDGMENTS: &[u8] = b"QStartNoAckMode";

/// A connection on which more is told.
pub(crate) struct Wire<C> {
    inner: C,
    becomes: Becomes,
    asked: Asked,
    /// What has been written of a packet.
    packet: Vec<u8>,
    /// What has been read, and the crate has not got yet.
    heard: VecDeque<u8>,
    line: Rc<Line>,
    /// gdb has asked why the program stands.
    asks_why: bool,
    here: Here,
    /// Packets of rr's server are answered, too.
    as_rr: bool,
}

/// What gdb says.
pub(crate) enum Heard {
    /// A byte for the crate.
    Byte(u8),
    /// The body of a packet for us.
    Ours(Vec<u8>),
}

impl<C> Wire<C> {
    pub fn new(inner: C, line: Rc<Line>, becomes: Becomes, asked: Asked, here: Here) -> Wire<C> {
        Wire {
            inner,
            becomes,
            asked,
            packet: Vec::new(),
            heard: VecDeque::new(),
            line,
            asks_why: false,
            here,
            as_rr: false,
        }
    }

    /// Who connects takes it for rr's server, or not.
    pub fn passing_for_rr(self, as_rr: bool) -> Wire<C> {
        Wire { as_rr, ..self }
    }

    pub fn is_rr(&self) -> bool {
        self.as_rr
    }
}

impl<C: ConnectionExt> Wire<C> {
    /// The next thing that gdb says. Packets are read whole.
    pub fn hear(&mut self) -> Result<Heard, C::Error> {
        if let Some(byte) = self.heard.pop_front() {
            return Ok(Heard::Byte(byte));
        }
        let first = self.inner.read()?;
        if first != b'$' {
            return Ok(Heard::Byte(first));
        }
        let mut packet = vec![first];
        while packet.len() < TAIL || packet[packet.len() - TAIL] != b'#' {
            if packet.len() >= MOST_ASKED {
                break;
            }
            packet.push(self.inner.read()?);
        }
        let body = &packet[1..packet.len().saturating_sub(TAIL).max(1)];
        if is_ours(body) || self.as_rr && rr::is_ours(body) {
            if !self.line.talks.get() {
                self.inner.write(b'+')?;
            }
            return Ok(Heard::Ours(body.to_vec()));
        }
        if body == NO_ACKNOWLEDGMENTS {
            self.line.talks.set(true);
        }
        self.asks_why = body == WHY;
        self.asked.replace(conditions(body));
        self.heard.extend(&packet[1..]);
        Ok(Heard::Byte(first))
    }

    /// Answers a packet of ours.
    pub fn answer(&mut self, body: &[u8]) -> Result<(), C::Error> {
        self.inner.write_all(&packet_of(body))?;
        self.inner.flush()
    }

    /// The next byte, if there is one.
    pub fn peek(&mut self) -> Result<Option<u8>, C::Error> {
        match self.heard.front() {
            Some(byte) => Ok(Some(*byte)),
            None => self.inner.peek(),
        }
    }
}

/// A packet with this body.
pub(crate) fn packet_of(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    [b"$", body, format!("#{sum:02x}").as_bytes()].concat()
}

/// The answer to why the program stands, with the signal's number as gdb counts.
fn stopped_by(packet: &[u8], signal: u8) -> Option<Vec<u8>> {
    let body = packet.strip_prefix(b"$")?;
    let rest = body.get(..body.len().checked_sub(TAIL)?)?;
    let rest = rest.strip_prefix(STOPPED)?;
    Some(packet_of(
        &[format!("T{signal:02x}").as_bytes(), rest].concat(),
    ))
}

/// A packet that tells more; `None`: it stays as it is.
fn telling(packet: &[u8], becomes: &Becomes) -> Option<Vec<u8>> {
    let body = packet
        .strip_prefix(b"$")
        .and_then(|p| p.len().checked_sub(TAIL).map(|n| &p[..n]))?;
    if body.starts_with(SUPPORTED) {
        return Some(packet_of(&[body, MORE_SUPPORTED].concat()));
    }
    body.strip_prefix(b"T")?;
    let name = becomes.borrow_mut().take()?;
    let mut text = String::from("exec:");
    for byte in name {
        let _ = write!(text, "{byte:02x}");
    }
    text.push(';');
    Some(packet_of(&[body, text.as_bytes()].concat()))
}

/// The conditions of a breakpoint, if the packet asks for one: `Z0,ADDRESS,KIND;XLENGTH,BYTESXLENGTH,BYTES...`. One that can't be read is left
/// out, and then all are: gdb judges by itself as well.
fn conditions(body: &[u8]) -> Conditions {
    let is_breakpoint = body.starts_with(b"Z0,") || body.starts_with(b"Z1,");
    let mut parts = body.split(|b| *b == b';').skip(1);
    let list = parts
        .next()
        .filter(|l| is_breakpoint && l.starts_with(b"X"));
    let expressions = list.iter().flat_map(|l| l[1..].split(|b| *b == b'X'));
    let all: Option<Conditions> = expressions
        .map(|one| Some(Rc::new(Expression::new(bytes(one)?)?)))
        .collect();
    all.unwrap_or_default()
}

/// `LENGTH,BYTES`, all in hexadecimal.
fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    let (len, digits) = std::str::from_utf8(text).ok()?.split_once(',')?;
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    bytes.filter(|b| usize::from_str_radix(len, 16) == Ok(b.len()))
}

impl<C: Connection> Connection for &mut Wire<C> {
    type Error = C::Error;

    fn write(&mut self, byte: u8) -> Result<(), C::Error> {
        if self.packet.is_empty() && byte != b'$' {
            return self.inner.write(byte);
        }
        // In one piece: each byte by itself would be a call of the kernel.
        self.packet.push(byte);
        let n = self.packet.len();
        if n <= TAIL || self.packet[n - TAIL] != b'#' {
            return Ok(());
        }
        let packet = std::mem::take(&mut self.packet);
        let told = match std::mem::take(&mut self.asks_why) {
            true => stopped_by(&packet, self.here.get()),
            false => telling(&packet, &self.becomes),
        };
        let told = told.unwrap_or(packet);
        self.inner.write_all(&told)
    }

    fn flush(&mut self) -> Result<(), C::Error> {
        self.inner.flush()
    }

    fn on_session_start(&mut self) -> Result<(), C::Error> {
        self.inner.on_session_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stop_tells_of_a_program() {
        let becomes: Becomes = Rc::new(RefCell::new(Some(b"/a".to_vec())));
        assert_eq!(telling(b"$OK#9a", &becomes), None);
        let told = telling(b"$T05thread:1;#00", &becomes).expect("a stop");
        let sum = b"T05thread:1;exec:2f61;"
            .iter()
            .fold(0u8, |sum, b| sum.wrapping_add(*b));
        assert_eq!(
            told,
            format!("$T05thread:1;exec:2f61;#{sum:02x}").as_bytes()
        );
        assert_eq!(telling(b"$T05thread:1;#00", &becomes), None);
    }

    #[test]
    fn conditions_are_taken_out_of_a_packet() {
        let of = |body: &str| -> Vec<Vec<u8>> {
            let all = conditions(body.as_bytes());
            all.iter().map(|e| e.bytes().to_vec()).collect()
        };
        assert_eq!(of("Z0,401136,1;X3,220127"), [[0x22, 1, 0x27]]);
        assert_eq!(
            of("Z1,401136,1;X3,220127X3,220027;cmds:0,X1,27"),
            [[0x22, 1, 0x27], [0x22, 0, 0x27]]
        );
        for none in [
            "Z0,401136,1",
            "Z0,401136,1;cmds:0,X1,27",
            "Z0,401136,1;X3,2201",
            "Z0,401136,1;X3,220127X3,22zz27",
            "Z2,401136,8;X3,220127",
            "m401136,8;X3,220127",
        ] {
            assert!(of(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn gdb_learns_that_conditions_are_evaluated_here() {
        let told = telling(b"$PacketSize=1000;swbreak+#00", &Becomes::default());
        let told = told.expect("an answer");
        let text = String::from_utf8_lossy(&told);
        assert!(text.starts_with("$PacketSize=1000;swbreak+;ConditionalBreakpoints+;qXfer"));
    }
}
