//! The `serial` engine: exactly one thread of the session runs, the one that holds the baton (DoublePlay's uniprocessor
//! execution, 3 and 5.2.2).

pub mod arrived;
pub mod baton;
pub mod chaos;
pub mod cut;
pub mod follow;
pub mod futex;
pub mod hooked;
pub mod left;
pub mod loss;
pub mod parts;
pub mod processes;
pub mod quick;
pub mod record;
pub mod replay;
pub mod reread;
pub mod stands;
pub mod told;
pub mod waits;
pub mod writes;
