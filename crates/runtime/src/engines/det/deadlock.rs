//! All threads wait for each other: said, with who waits for what, instead of hanging.

use super::ending;
use super::token::{self, member};
use crate::machine::sys;
use crate::thread::panic::hex;
use crate::thread::slot;
use core::sync::atomic::Ordering::Relaxed;

/// Exit status of reprise's own failures.
pub const STATUS: u32 = 125;

/// A number in decimal.
pub fn decimal(mut n: u32, out: &mut [u8; 10]) -> &str {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    core::str::from_utf8(&out[at..]).unwrap_or("?")
}

/// Says it, and ends the program.
pub fn report() -> ! {
    sys::complain(&["reprise: deadlock: every thread waits for another one\n"]);
    for s in token::all_in(token::state::WAITS) {
        let m = member(s);
        let (mut a, mut b, mut n) = ([0; 18], [0; 18], [0; 10]);
        sys::complain(&[
            "reprise:   thread ",
            decimal(m.index.load(Relaxed), &mut n),
            " waits for the object at ",
            hex(m.word.load(Relaxed), &mut a),
            " (its last system call was at ",
            hex(slot(s).last_pc.load(Relaxed), &mut b),
            ")\n",
        ]);
    }
    ending::end(STATUS << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for n in [0, 7, 10, 4_294_967_295] {
            assert_eq!(decimal(n, &mut [0; 10]), std::format!("{n}"));
        }
    }
}
