//! Which engine is in force, as a type: the one place that knows all of them. What is generic over [`Engine`](crate::engine::Engine) or
//! [`Order`](crate::engine::order::Order) is entered by these macros.

use crate::signal::frame::Ucontext;
use crate::thread::Block;

/// What a replay has written into the code is still there in a diversion, where no engine is in force: is this trap due to it, and dealt with?
pub fn trap_of_replay(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
    crate::engines::serial::cut::replay::trap(t, signal, uc)
}

/// Has this image an engine for this role?
pub fn has(role: u32) -> bool {
    use crate::thread::in_force::{DET, NONE};
    let is_sketch = role == crate::thread::in_force::SKETCH;
    (NONE..=DET).contains(&role) || is_sketch && cfg!(feature = "sketch")
}

/// Runs an expression with the engine in force as a type.
macro_rules! with_engine {
    ($e:ident => $body:expr) => {
        match $crate::thread::in_force::ENGINE.load(core::sync::atomic::Ordering::Relaxed) {
            $crate::thread::in_force::SERIAL_RECORD => {
                type $e = $crate::engines::serial::record::Record;
                $body
            }
            $crate::thread::in_force::SERIAL_REPLAY => {
                type $e = $crate::engines::serial::replay::Replay;
                $body
            }
            $crate::thread::in_force::ORDER_RECORD => {
                type $e = $crate::engines::order::record::Record;
                $body
            }
            $crate::thread::in_force::ORDER_REPLAY => {
                type $e = $crate::engines::order::replay::Replay;
                $body
            }
            $crate::thread::in_force::FOLLOW => {
                type $e = $crate::engines::serial::follow::Follow;
                $body
            }
            $crate::thread::in_force::DET => {
                type $e = $crate::engines::det::Det;
                $body
            }
            #[cfg(feature = "sketch")]
            $crate::thread::in_force::SKETCH => {
                type $e = $crate::engines::sketch::Sketch;
                $body
            }
            _ => {
                type $e = $crate::engines::none::None;
                $body
            }
        }
    };
}
pub(crate) use with_engine;

/// Runs an expression with the order in force as a type.
macro_rules! with_order {
    ($o:ident => $body:expr) => {
        match $crate::thread::in_force::ENGINE.load(core::sync::atomic::Ordering::Relaxed) {
            $crate::thread::in_force::SERIAL_RECORD => {
                type $o = $crate::engines::serial::record::Record;
                $body
            }
            $crate::thread::in_force::SERIAL_REPLAY => {
                type $o = $crate::engines::serial::replay::Replay;
                $body
            }
            $crate::thread::in_force::ORDER_RECORD => {
                type $o = $crate::engines::order::record::Record;
                $body
            }
            $crate::thread::in_force::ORDER_REPLAY => {
                type $o = $crate::engines::order::replay::Replay;
                $body
            }
            $crate::thread::in_force::FOLLOW => {
                type $o = $crate::engines::serial::follow::Follow;
                $body
            }
            $crate::thread::in_force::DET => {
                type $o = $crate::engines::det::turns::InTurns;
                $body
            }
            #[cfg(feature = "sketch")]
            $crate::thread::in_force::SKETCH => {
                type $o = $crate::engines::sketch::AtGates;
                $body
            }
            _ => {
                type $o = $crate::engine::order::Unordered;
                $body
            }
        }
    };
}
pub(crate) use with_order;

/// As [`with_order`], for the allocator.
macro_rules! with_order_of_heaps {
    ($o:ident => $body:expr) => {
        match $crate::thread::in_force::ENGINE.load(core::sync::atomic::Ordering::Relaxed) {
            $crate::thread::in_force::DET => {
                type $o = $crate::engines::det::turns::InOwnHeap;
                $body
            }
            _ => $crate::dispatch::with_order!($o => $body),
        }
    };
}
pub(crate) use with_order_of_heaps;
