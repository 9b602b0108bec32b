//! What a recorded event has for the program: its outputs are written, and what it says of files and descriptors is told.

use crate::log::output;
use crate::log::ring;
use crate::log::ring::Reader;
use crate::machine::{guard, sys};
use crate::memory::files;
use crate::memory::input_files;
use crate::memory::of_file::OfFile;
use crate::thread::{message, session};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Tag;
use reprise_abi::inputs::{Reference, REFERENCE_LEN};

/// Writes an event's outputs to the program and skips the rest; what it says of a mapped file, where there is one.
pub fn apply(r: Reader) -> OfFile {
    apply_at(r, Some)
}

/// As [`apply`], where outputs go to the place that `place` says.
pub fn apply_at(mut r: Reader, place: impl Fn(u64) -> Option<u64>) -> OfFile {
    let mut file = OfFile::default();
    while let Some((address, len, tag)) = r.section() {
        match Tag::from_u32(tag) {
            Some(Tag::Output) => match place(address) {
                Some(at) => {
                    r.to_program(at, len);
                }
                None => {
                    file.lost = true;
                    r.skip(len.div_ceil(8) * 8);
                }
            },
            Some(Tag::Reference) => {
                let mut bytes = [0; REFERENCE_LEN];
                r.to_buffer(len, &mut bytes);
                match (Reference::parse(&bytes), place(address)) {
                    (Some(part), Some(at)) => {
                        if !input_files::read(&part, at) {
                            no_input(part.file());
                        }
                    }
                    (None, _) => no_input(0),
                    (_, None) => file.lost = true,
                }
            }
            Some(Tag::SentReference) => {
                let mut bytes = [0; REFERENCE_LEN];
                r.to_buffer(len, &mut bytes);
                let part = Reference::parse(&bytes).unwrap_or_else(|| no_input(0));
                let show = |at, n| output::show_sent(address, at, n);
                if output::shows_sent() && !input_files::each_piece(&part, show) {
                    no_input(part.file());
                }
            }
            Some(Tag::File) => {
                let mut hash = [0; 16];
                r.to_buffer(len, &mut hash);
                file.hash = Some(hash);
            }
            Some(Tag::Mapped) => {
                let mut bytes = [0; REFERENCE_LEN];
                r.to_buffer(len, &mut bytes);
                let Some(part) = reprise_abi::mapped::parse(&bytes) else {
                    no_input(0);
                };
                file.hash = Some(files::name_of_copy(part.file()));
                file.len = address;
            }
            Some(Tag::Offset) => {
                file.offset = address;
                r.skip(len.div_ceil(8) * 8);
            }
            Some(Tag::Descriptor) => {
                file.descriptor = Some(address);
                r.skip(len.div_ceil(8) * 8);
            }
            Some(tag) if output::take_section(&mut r, address, len, tag) => {}
            Some(Tag::Partly) => {
                file.partly = address;
                r.skip(len.div_ceil(8) * 8);
            }
            _ => r.skip(len.div_ceil(8) * 8),
        }
    }
    r.finish();
    file
}

/// A file that the recording mapped is not to be had.
pub fn cannot_map(event: u64) -> ! {
    session().message.store(message::CANNOT_MAP, Relaxed);
    session().message_arg.store(event, Relaxed);
    sys::exit_group(125)
}

/// The trace does not have what was read of a file, or has something else.
pub fn no_input(number: u64) -> ! {
    session().message.store(message::NO_INPUT, Relaxed);
    session().message_arg.store(number, Relaxed);
    sys::exit_group(125)
}

/// A torn trace: everything that was recorded has been replayed.
pub fn trace_ended() -> ! {
    session().message.store(message::TRACE_ENDED, Relaxed);
    sys::exit_group(125)
}

/// A test switch: flips one bit of the program's memory before one event, to prove that it is noticed.
pub fn tamper() {
    let s = session();
    if s.tamper_event != 0 && ring::event_number() >= s.tamper_event {
        static DONE: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);
        if !DONE.swap(true, Relaxed) {
            if let Some(b) = guard::read::<u8>(s.tamper_address) {
                guard::write(s.tamper_address, &(b ^ 1));
            }
        }
    }
}
