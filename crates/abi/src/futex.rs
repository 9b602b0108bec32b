//! The operations of futex(2): what they are called, and which of its arguments each of them uses.

/// How the fourth argument, `timeout`, is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fourth {
    /// It is not used.
    Unused,
    /// A timeout from now (FUTEX_WAIT).
    Relative,
    /// A point in time.
    Absolute,
    /// A number: how many waiters are moved or woken at the second futex.
    Count,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The caller may sleep.
    Wait,
    /// Sleepers are woken or moved; the caller never sleeps.
    Wake,
    /// Neither: it fails or changes a word.
    Other,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its number, without [`FUTEX_PRIVATE_FLAG`] and [`FUTEX_CLOCK_REALTIME`].
    pub nr: u32,
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub effect: Effect,
    /// What the argument `timeout` is to it.
    pub fourth: Fourth,
    /// It uses `uaddr2`.
    pub second: bool,
    /// It keeps priority inheritance: the words hold thread ids.
    pub pi: bool,
}

/// The futex is used by one process only.
pub const FUTEX_PRIVATE_FLAG: u32 = 128;
/// A point in time is on CLOCK_REALTIME instead of CLOCK_MONOTONIC.
pub const FUTEX_CLOCK_REALTIME: u32 = 256;

macro_rules! operations {
    ($($nr:literal $name:ident: $effect:ident, $fourth:ident $(, $word:ident)*;)*) => {
        $(
            #[doc = concat!("Number of `", stringify!($name), "`.")]
            pub const $name: u32 = $nr;
        )*

        /// All operations, in order of their numbers, which have no gaps.
        pub const OPERATIONS: &[Operation] = &[$({
            #[allow(unused_mut)]
            let mut operation = Operation {
                nr: $nr,
                name: stringify!($name),
                effect: Effect::$effect,
                fourth: Fourth::$fourth,
                second: false,
                pi: false,
            };
            $(operation.$word = true;)*
            operation
        }),*];
    };
}

operations! {
    0 FUTEX_WAIT: Wait, Relative;
    1 FUTEX_WAKE: Wake, Unused;
    2 FUTEX_FD: Other, Unused;
    3 FUTEX_REQUEUE: Wake, Count, second;
    4 FUTEX_CMP_REQUEUE: Wake, Count, second;
    5 FUTEX_WAKE_OP: Wake, Count, second;
    6 FUTEX_LOCK_PI: Wait, Absolute, pi;
    7 FUTEX_UNLOCK_PI: Wake, Unused, pi;
    8 FUTEX_TRYLOCK_PI: Other, Unused, pi;
    9 FUTEX_WAIT_BITSET: Wait, Absolute;
    10 FUTEX_WAKE_BITSET: Wake, Unused;
    11 FUTEX_WAIT_REQUEUE_PI: Wait, Absolute, second, pi;
    12 FUTEX_CMP_REQUEUE_PI: Wake, Count, second, pi;
    13 FUTEX_LOCK_PI2: Wait, Absolute, pi;
}

/// The operation in the second argument of futex(2), its flags left aside.
pub fn lookup(op: u64) -> Option<&'static Operation> {
    let nr = op as u32 & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    OPERATIONS.get(nr as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_whatever_their_flags() {
        for (i, operation) in OPERATIONS.iter().enumerate() {
            assert_eq!(operation.nr as usize, i, "{}", operation.name);
        }
        let op = (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) as u64;
        assert_eq!(lookup(op).map(|o| o.name), Some("FUTEX_WAIT_BITSET"));
        assert_eq!(lookup(14), None);
        assert_eq!(lookup(127), None);
    }
}
