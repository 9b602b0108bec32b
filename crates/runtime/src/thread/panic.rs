//! The runtime's own end: short, on standard error, exit status 125.

use crate::machine::sys;
use crate::thread::message;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Formats a number.
pub fn hex(n: u64, out: &mut [u8; 18]) -> &str {
    out[0] = b'0';
    out[1] = b'x';
    for i in 0..16 {
        out[2 + i] = b"0123456789abcdef"[(n >> (60 - 4 * i)) as usize & 15];
    }
    core::str::from_utf8(out).unwrap_or("?")
}

/// Ends the process because the runtime can't go on.
pub fn give_up(why: &str) -> ! {
    message::say(message::GAVE_UP);
    sys::complain(&["reprise: the runtime can't go on: ", why, "\n"]);
    tell_others();
    sys::exit_group(125)
}

/// Who tells other processes of the program that this one ends, if anybody does: a `fn()`.
static TELLS: AtomicUsize = AtomicUsize::new(0);

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

/// From now on `tell` is called before the runtime ends the process.
pub fn tell_before_end(tell: fn()) {
    TELLS.store(tell as usize, Relaxed);
}

fn tell_others() {
    let tell = TELLS.load(Relaxed);
    if tell != 0 {
        // SAFETY: only a `fn()` is stored there.
        unsafe { core::mem::transmute::<usize, fn()>(tell)() }
    }
}

/// Ends the process because the runtime itself faulted.
pub fn runtime_fault(signal: u32, pc: u64, address: u64) -> ! {
    message::say(message::GAVE_UP);
    let (mut a, mut b, mut c) = ([0; 18], [0; 18], [0; 18]);
    sys::complain(&[
        "reprise: fault in the runtime: signal ",
        hex(signal as u64, &mut a),
        " at ",
        hex(pc, &mut b),
        " address ",
        hex(address, &mut c),
        "\n",
    ]);
    tell_others();
    sys::exit_group(125)
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
