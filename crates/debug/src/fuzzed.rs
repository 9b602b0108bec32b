//! What gdb may send, and what a program's memory may be, made up by a fuzzer: `fuzz/fuzz_targets/packets.rs`, `fuzz/fuzz_targets/expressions.rs` and
//! `fuzz/fuzz_targets/python.rs` say what must hold. Here, because what reads it is
//! nobody's business outside of this crate. In builds for a fuzzer and in tests only.

use crate::debuggee::General;
use crate::expression::{Expression, MAX_BYTES};
use crate::machine_code::Code;
use crate::moving::Line;
use crate::packets;
use crate::rr;
use crate::translated::{translate, Use};
use crate::wire::{Asked, Becomes, Heard, Here, Wire};
use gdbstub::conn::{Connection, ConnectionExt};
use std::fs::File;
use std::rc::Rc;

/// Most bytes of machine code for a byte of an expression: each operation has at least one.
const CODE_FOR_BYTE: usize = 64;

/// A debugger that says this, and listens.
struct Debugger<'a> {
    says: &'a [u8],
    heard: usize,
}

/// It has said all.
#[derive(Debug)]
struct Gone;

impl Connection for Debugger<'_> {
    type Error = Gone;

    fn write(&mut self, _: u8) -> Result<(), Gone> {
        self.heard += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Gone> {
        Ok(())
    }
}

impl ConnectionExt for Debugger<'_> {
    fn read(&mut self) -> Result<u8, Gone> {
        let (first, rest) = self.says.split_first().ok_or(Gone)?;
        self.says = rest;
        Ok(*first)
    }

    fn peek(&mut self) -> Result<Option<u8>, Gone> {
        Ok(self.says.first().copied())
    }
}

/// Hears `data`, and answers with it.
pub fn packets(data: &[u8]) {
    let nowhere = File::open("/dev/null").expect("it is there");
    let line = Rc::new(Line::new(nowhere.into()));
    let asked = Asked::default();
    let becomes = Becomes::default();
    becomes.replace(Some(data.iter().take(100).copied().collect()));
    let gdb = Debugger {
        says: data,
        heard: 0,
    };
    let wire = Wire::new(gdb, line, becomes, Rc::clone(&asked), Here::default());
    let mut wire = wire.passing_for_rr(true);
    let mut heard = 0;
    loop {
        let peeked = wire.peek().expect("a word or none");
        match wire.hear() {
            Ok(Heard::Byte(byte)) => {
                assert_eq!(peeked, Some(byte));
                heard += 1;
            }
            Ok(Heard::Ours(body)) => {
                assert!(packets::is_ours(&body) || rr::is_ours(&body));
                packets::questions(&body);
                wire.answer(&body).expect("it listens");
                heard += body.len();
            }
            // A packet without an end is lost with its debugger.
            Err(Gone) => break,
        }
        assert!(heard <= data.len(), "more than was said");
        let conditions = asked.borrow();
        assert!(conditions.iter().all(|e| e.bytes().len() <= MAX_BYTES));
    }
    let mut to = &mut wire;
    for byte in data {
        to.write(*byte).expect("it listens");
    }
}

/// Evaluates `data` as an expression, and translates it.
pub fn expressions(data: &[u8]) {
    let Some(e) = Expression::new(data.to_vec()) else {
        assert!(data.len() > MAX_BYTES);
        return;
    };
    let mut registers = General::default();
    for (r, n) in registers.r.iter_mut().zip(1u64..) {
        *r = n << (3 * n);
    }
    // Half of all memory is there.
    let read = |at: u64, into: &mut [u8]| {
        into.iter_mut()
            .zip(0..8)
            .for_each(|(b, n)| *b = (at >> (8 * n)) as u8);
        at & 1 == 0
    };
    let value = e.value(&registers, read);
    assert_eq!(e.value(&registers, read), value);
    let mut code = Code {
        bytes: Vec::new(),
        base: 0x10000,
        data: 0x20000,
    };
    if translate(&mut code, &e, 0x1000, Use::Test).is_some() {
        assert!(code.bytes.len() <= CODE_FOR_BYTE * data.len().max(1));
    }
}

/// Takes `data` for the memory of a program that is Python's.
pub fn python(data: &[u8]) {
    crate::python::any_memory(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::WORTH;
    use proptest::prelude::*;

    /// A conversation of gdb's.
    const SAID: &[u8] = b"+$qSupported:multiprocess+;swbreak+#c6$QStartNoAckMode#b0$?#3f$Z0,401136,1;X3,220127X3,220027;cmds:0,X1,27#00\
        $qGetTLSAddr:p1.2a,10,7ffff7ffe000#00$qXfer:siginfo:read::0,100#00\x03$m401136,8#00$vCont;c:p1.-1#00";

    fn changed(from: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
        let len = from.len();
        let change = (0..len, any::<u8>(), 0..6u8);
        prop::collection::vec(change, 0..6).prop_map(move |changes| {
            let mut bytes = from.clone();
            for (at, byte, how) in changes {
                let at = at.min(bytes.len().saturating_sub(1));
                match how {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, byte),
                    2 => bytes.extend_from_within(at..),
                    3 if !bytes.is_empty() => drop(bytes.remove(at)),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = byte),
                }
            }
            bytes
        })
    }

    fn anything() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..2000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_packets(said in prop_oneof![changed(SAID.to_vec()), anything()]) {
            packets(&said);
        }

        #[test]
        fn any_memory_of_python(
            data in prop_oneof![anything(), anything().prop_map(|rest| [b"xdebugpy\0\0\x0e\x03".to_vec(), rest].concat())],
        ) {
            python(&data);
        }

        #[test]
        fn any_expressions(
            bytes in prop_oneof![(0..WORTH.len()).prop_flat_map(|n| changed(WORTH[n].0.to_vec())), anything()],
        ) {
            expressions(&bytes);
        }
    }

    #[test]
    fn a_packet_without_an_end_is_not_kept() {
        let mut said = vec![b'x'; 1 << 20];
        said[0] = b'$';
        packets(&said);
    }
}
