//! Threads that wait by looking at memory and at the clock, to sleep when it takes long: each look is a gate, at the same place, with the same registers, and
//! little time between them. Libraries for linear algebra wait so.

use crate::thread::Frame;

/// So many readings in a row like this are a wait.
const IN_A_ROW: u32 = 3;
/// Between two of them lies less than this, in a time stamp counter's units, ...
pub const NEAR_COUNTS: i64 = 200_000;
/// ... in nanoseconds, ...
pub const NEAR_NS: i64 = 60_000;

/// What a thread read of clocks.
#[derive(Default)]
pub struct Readings {
    /// The value read at this gate, and what is near to it.
    new: Option<(i64, i64)>,
    last: i64,
    /// The registers that calls leave alone, at that one.
    state: [u64; 8],
    in_a_row: u32,
    /// Others ran since.
    gave_way: bool,
}

impl Readings {
    /// This gate reads a clock. `near`: what may lie between two values of a thread that waits.
    pub fn read(&mut self, value: i64, near: i64) {
        self.new = Some((value, near));
    }

    /// This gate does something else.
    pub fn something_else(&mut self) {
        (self.new, self.in_a_row) = (None, 0);
    }

    /// Was a clock read at this gate?
    pub fn is_new(&self) -> bool {
        self.new.is_some()
    }

    /// At the end of a gate: does the thread only wait?
    pub fn is_waiting(&mut self, f: &Frame) -> bool {
        let Some((value, near)) = self.new.take() else {
            return false;
        };
        let state = [f.rip, f.rsp, f.rbx, f.rbp, f.r12, f.r13, f.r14, f.r15];
        let soon = self.gave_way || (0..near).contains(&value.wrapping_sub(self.last));
        self.in_a_row = match soon && state == self.state {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
        (self.last, self.state) = (value, state);
        self.gave_way = self.in_a_row >= IN_A_ROW;
        self.gave_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(r: &mut Readings, values: &[i64], f: &Frame) -> std::vec::Vec<bool> {
        let look = |v: &i64| {
            r.read(*v, NEAR_NS);
            r.is_waiting(f)
        };
        values.iter().map(look).collect()
    }

    #[test]
    fn only_readings_in_a_row_are_a_wait() {
        let (mut r, f) = (Readings::default(), Frame::default());
        let far = 10 * NEAR_NS;
        assert_eq!(
            looks(&mut r, &[far, far + 1, far + 2, far + 3, far + 4], &f),
            [false, false, false, true, true]
        );
        // Others ran meanwhile, for long.
        assert_eq!(looks(&mut r, &[9 * far], &f), [true]);
        r.something_else();
        assert_eq!(looks(&mut r, &[9 * far + 1], &f), [false]);
        // Who computes between two readings doesn't wait.
        let mut r = Readings::default();
        let apart: std::vec::Vec<i64> = (1..9).map(|i| i * far).collect();
        assert!(!looks(&mut r, &apart, &f).contains(&true));
    }

    #[test]
    fn a_thread_that_goes_on_does_not_wait() {
        let mut r = Readings::default();
        for i in 0..9 {
            let f = Frame {
                rbx: i,
                ..Frame::default()
            };
            assert_eq!(looks(&mut r, &[i as i64], &f), [false]);
        }
    }
}
