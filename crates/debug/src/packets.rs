//! Packets of gdb that the crate `gdbstub` doesn't know, and their answers.

use crate::control::Stop;
use crate::rr;
use crate::target::Session;
use crate::DebugError;

/// Where a thread's own variable is: `qGetTLSAddr:THREAD,OFFSET,LINK_MAP`.
const THREAD_LOCAL: &[u8] = b"qGetTLSAddr:";

/// What the kernel told of the signal at which the program stands: `qXfer:siginfo:read::OFFSET,LENGTH`.
const SIGNAL: &[u8] = b"qXfer:siginfo:read::";

/// Is it answered here?
pub(crate) fn is_ours(body: &[u8]) -> bool {
    [THREAD_LOCAL, SIGNAL].iter().any(|p| body.starts_with(p))
}

/// Says that there is no such thing.
const NONE: &[u8] = b"E01";

impl Session {
    /// Answers a packet that [`is_ours`], or rr's.
    ///
    /// # Errors
    /// When the debuggee is gone.
    pub(crate) fn answer(&mut self, body: &[u8]) -> Result<Vec<u8>, DebugError> {
        if rr::is_ours(body) {
            return self.answer_as_rr(body);
        }
        let answer = match (body.strip_prefix(THREAD_LOCAL), body.strip_prefix(SIGNAL)) {
            (Some(rest), _) => self.thread_local_at(rest)?,
            (_, Some(rest)) => self.signal_here(rest)?,
            _ => None,
        };
        Ok(answer.unwrap_or_else(|| NONE.to_vec()))
    }

    fn thread_local_at(&mut self, asked: &[u8]) -> Result<Option<Vec<u8>>, DebugError> {
        let d = self.debuggee()?;
        let Some((thread, offset, link_map)) = variable(asked) else {
            return Ok(None);
        };
        let slot = d.slots().find(|s| u64::from(d.visible(*s)) == thread);
        let at = slot.and_then(|slot| d.thread_local(slot, offset, link_map));
        Ok(at.map(|at| format!("{at:x}").into_bytes()))
    }
}

impl Session {
    fn signal_here(&mut self, asked: &[u8]) -> Result<Option<Vec<u8>>, DebugError> {
        let Some(Stop::Signal(slot, signal)) = self.last else {
            return Ok(None);
        };
        let Some((offset, length)) = two_numbers(asked) else {
            return Ok(None);
        };
        let told = self.debuggee()?.signal_told(slot, signal)?;
        Ok(Some(portion(&told, offset, length)))
    }
}

/// What of an object is asked for, behind a letter that says whether there is more.
pub(crate) fn portion(object: &[u8], offset: u64, length: u64) -> Vec<u8> {
    let rest = usize::try_from(offset).ok().and_then(|o| object.get(o..));
    let rest = rest.unwrap_or(&[]);
    let (mark, part) = match rest.len() as u64 > length {
        true => (b'm', &rest[..length as usize]),
        false => (b'l', rest),
    };
    let mut answer = vec![mark];
    for byte in part {
        // Bytes that mean something else in packets (gdb, "Binary Data").
        match byte {
            b'#' | b'$' | b'}' | b'*' => answer.extend([b'}', byte ^ 0x20]),
            _ => answer.push(*byte),
        }
    }
    answer
}

/// `THREAD,OFFSET,LINK_MAP`.
fn variable(asked: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(asked).ok()?;
    let mut parts = text.split(',');
    let thread = thread(parts.next()?)?;
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    Some((thread, number()?, number()?))
}

/// Reads what a packet that [`is_ours`] asks.
#[cfg(any(test, fuzzing))]
pub(crate) fn questions(body: &[u8]) {
    body.strip_prefix(THREAD_LOCAL).and_then(variable);
    body.strip_prefix(SIGNAL).and_then(two_numbers);
    rr::questions(body);
}

/// `OFFSET,LENGTH`, in hexadecimal.
pub(crate) fn two_numbers(text: &[u8]) -> Option<(u64, u64)> {
    let (a, b) = std::str::from_utf8(text).ok()?.split_once(',')?;
    let number = |t| u64::from_str_radix(t, 16).ok();
    Some((number(a)?, number(b)?))
}

/// `pPROCESS.THREAD`, or `THREAD` alone.
fn thread(text: &str) -> Option<u64> {
    let id = match text.strip_prefix('p') {
        Some(both) => both.split_once('.')?.1,
        None => text,
    };
    u64::from_str_radix(id, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_with_their_process_or_without() {
        assert_eq!(thread("p1.2a"), Some(0x2a));
        assert_eq!(thread("2a"), Some(0x2a));
        assert_eq!(thread("p1"), None);
        assert_eq!(thread("-1"), None);
    }
}
