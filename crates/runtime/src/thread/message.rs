//! What the runtime has to tell the user: numbers in the session, which the launcher turns into sentences.

use crate::thread::session;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::notes;

/// A process could not be followed through its exec.
pub const EXEC_REFUSED: u32 = 2;
/// More threads than slots, or more processes than there is room for.
pub const TOO_MANY_THREADS: u32 = 3;
/// Replay: the trace has no more events.
pub const TRACE_ENDED: u32 = 4;
/// Replay: a recorded mapping can't be made.
pub const CANNOT_MAP: u32 = 5;
/// Replay: a recorded thread can't be started.
pub const CANNOT_START_THREAD: u32 = 6;
/// The runtime gave up; its last words are on the program's standard error.
pub const GAVE_UP: u32 = 7;
/// Replay in total order: no thread can go on, since each waits for another one.
pub const ALL_THREADS_WAIT: u32 = 8;
/// Replay: the trace has no copy of a file that was read, or not the bytes that were.
pub const NO_INPUT: u32 = 9;
/// The program wanted to map a device.
pub const DEVICE_NOT_MAPPED: u32 = 20;

/// Notes something that the user should know: one of [`reprise_abi::notes`].
pub fn note(bit: u64) {
    session().notes.fetch_or(bit, Relaxed);
}

/// Notes that a call is refused, where a program's author would wonder.
pub fn note_refusal(number: u64) {
    if let Some(call) = reprise_abi::syscalls::lookup(number).filter(|call| call.note != 0) {
        note(call.note);
    }
}

/// Notes that an option of prctl(2) is refused.
pub fn note_option(option: u64) {
    match option as u32 {
        35 => note(notes::MEMORY_LAYOUT),
        59 => note(notes::DISPATCH),
        65 => note(notes::WRITE_OR_EXECUTE),
        _ => {}
    }
}

/// Leaves a message, unless there is one already.
pub fn say(message: u32) {
    let _ = session()
        .message
        .compare_exchange(0, message, Relaxed, Relaxed);
}
