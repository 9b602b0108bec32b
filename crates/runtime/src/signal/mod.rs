//! Signals are virtualised: the kernel knows only the runtime's handlers, and the program's handlers get frames that the
//! runtime builds, at gates or at named places, the same in record and in replay (DESIGN 3).

pub mod frame;
pub mod kernel;
pub mod segment;
pub mod step;
