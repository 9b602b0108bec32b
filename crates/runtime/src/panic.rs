//! The runtime's own end: short, on standard error, exit status 125.

use crate::message;
use crate::sys;

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

/// Threads that are processes end with this one.
fn tell_others() {
    if crate::det::runs() {
        crate::det::ending::announce(125 << 8);
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
