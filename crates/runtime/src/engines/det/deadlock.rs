//! All threads wait for each other: said, with who waits for what, instead of hanging.

use super::token::{self, member};
use crate::isolate::ending;
use crate::isolate::members::number_of;
use crate::machine::sys;
use crate::thread::panic::{decimal, hex};
use crate::thread::slot;
use core::sync::atomic::Ordering::Relaxed;

/// Says it, and ends the program.
pub fn report() -> ! {
    sys::complain(&["reprise: deadlock: every thread waits for another one\n"]);
    for s in token::all_in(token::state::WAITS) {
        let m = member(s);
        let (mut a, mut b, mut n) = ([0; 18], [0; 18], [0; 10]);
        sys::complain(&[
            "reprise:   thread ",
            decimal(number_of(s), &mut n),
            " waits for the object at ",
            hex(m.word.load(Relaxed), &mut a),
            " (its last system call was at ",
            hex(slot(s).last_pc.load(Relaxed), &mut b),
            ")\n",
        ]);
    }
    ending::end(ending::FAILED << 8)
}
