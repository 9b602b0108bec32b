//! What gdb and the crate `gdbstub` don't tell each other.
//!
//! - The debugged process becomes another program, or is again what it was before: `exec:NAME` in a stop reply. gdb then reads the new program's
//!   symbols, forgets the old one's threads and sets its breakpoints anew.
//! - Conditions of breakpoints: gdb is told that they are evaluated here, and then sends them with each breakpoint, as agent expressions.

use crate::breakpoints::Conditions;
use crate::expression::Expression;
use gdbstub::conn::{Connection, ConnectionExt};
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// The file of the program that the next stop is to tell of.
pub(crate) type Becomes = Rc<RefCell<Option<Vec<u8>>>>;
/// The conditions of the breakpoint that gdb has just asked for.
pub(crate) type Asked = Rc<RefCell<Conditions>>;

/// What follows a packet's body: `#` and two digits.
const TAIL: usize = 3;
/// Most bytes of a packet that is looked at.
const MOST_ASKED: usize = 1 << 16;
/// Begins the answer to the question what is supported here.
const SUPPORTED: &[u8] = b"PacketSize=";
const MORE_SUPPORTED: &[u8] = b";ConditionalBreakpoints+";

/// A connection on which more is told.
pub(crate) struct Wire<C> {
    inner: C,
    becomes: Becomes,
    asked: Asked,
    /// What has been written of a packet.
    packet: Vec<u8>,
    /// What has been read of one, if it is one.
    question: Option<Vec<u8>>,
}

impl<C> Wire<C> {
    pub fn new(inner: C, becomes: Becomes, asked: Asked) -> Wire<C> {
        Wire {
            inner,
            becomes,
            asked,
            packet: Vec::new(),
            question: None,
        }
    }

    /// Looks at what gdb says, byte by byte.
    fn listen(&mut self, byte: u8) {
        match (byte, self.question.take()) {
            (b'$', _) => self.question = Some(Vec::new()),
            (b'#', Some(whole)) => {
                self.asked.replace(conditions(&whole));
            }
            (_, Some(mut part)) if part.len() < MOST_ASKED => {
                part.push(byte);
                self.question = Some(part);
            }
            _ => {}
        }
    }
}

/// A packet with this body.
fn packet_of(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    [b"$", body, format!("#{sum:02x}").as_bytes()].concat()
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

impl<C: Connection> Connection for Wire<C> {
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
        let told = telling(&packet, &self.becomes).unwrap_or(packet);
        self.inner.write_all(&told)
    }

    fn flush(&mut self) -> Result<(), C::Error> {
        self.inner.flush()
    }

    fn on_session_start(&mut self) -> Result<(), C::Error> {
        self.inner.on_session_start()
    }
}

impl<C: ConnectionExt> ConnectionExt for Wire<C> {
    fn read(&mut self) -> Result<u8, C::Error> {
        let byte = self.inner.read()?;
        self.listen(byte);
        Ok(byte)
    }

    fn peek(&mut self) -> Result<Option<u8>, C::Error> {
        self.inner.peek()
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
        assert!(text.starts_with("$PacketSize=1000;swbreak+;ConditionalBreakpoints+#"));
    }
}
