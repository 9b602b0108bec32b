//! What gdb is told when the debugged process becomes another program, or is again what it was before: `exec:NAME` in a stop reply, of which the
//! crate `gdbstub` knows nothing yet. gdb then reads the new program's symbols, forgets the old one's threads and sets its breakpoints anew.

use gdbstub::conn::{Connection, ConnectionExt};
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// The file of the program that the next stop is to tell of.
pub(crate) type Becomes = Rc<RefCell<Option<Vec<u8>>>>;

/// What follows a packet's body: `#` and two digits.
const TAIL: usize = 3;

/// A connection on which stops may tell of a new program.
pub(crate) struct Wire<C> {
    inner: C,
    becomes: Becomes,
    /// What has been written of a packet that may be such a stop.
    packet: Vec<u8>,
}

impl<C> Wire<C> {
    pub fn new(inner: C, becomes: Becomes) -> Wire<C> {
        Wire {
            inner,
            becomes,
            packet: Vec::new(),
        }
    }
}

/// A stop reply that tells of a program as well; another packet as it is.
fn telling(packet: &[u8], becomes: &Becomes) -> Option<Vec<u8>> {
    let body = packet
        .strip_prefix(b"$T")
        .and_then(|p| p.len().checked_sub(TAIL).map(|n| &p[..n]))?;
    let name = becomes.borrow_mut().take()?;
    let mut text = String::from("exec:");
    for byte in name {
        let _ = write!(text, "{byte:02x}");
    }
    text.push(';');
    let body = [b"T", body, text.as_bytes()].concat();
    let sum = body.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    Some([b"$", &body[..], format!("#{sum:02x}").as_bytes()].concat())
}

impl<C: Connection> Connection for Wire<C> {
    type Error = C::Error;

    fn write(&mut self, byte: u8) -> Result<(), C::Error> {
        let may_begin = byte == b'$' && self.becomes.borrow().is_some();
        if self.packet.is_empty() && !may_begin {
            return self.inner.write(byte);
        }
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
        self.inner.read()
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
}
