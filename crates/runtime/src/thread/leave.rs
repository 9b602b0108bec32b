//! Whose leave is needed for what is [guarded](crate::machine::guarded): what keeps threads apart in several rooms. What one room alone has, as a
//! lock, is named there.

use crate::machine::guarded::Leave;

/// `serial`: the thread has the baton. Whoever has it is the only thread of the session that runs, in gates, in handlers and in the program; it keeps
/// no reference while it hands the baton on.
pub enum Baton {}
impl Leave for Baton {}

/// Engines with private views: it is the thread's turn, to change; others are outside of the runtime then, or wait. To look it is enough to run while
/// nobody can have a turn.
pub enum Turn {}
impl Leave for Turn {}

/// The address space: the baton, or the lock of the address space ([`crate::memory::space`]). Under `none` calls that the program itself may not
/// race.
pub enum AddressSpace {}
impl Leave for AddressSpace {}

/// To change: nobody else is there, since the program has not begun. To look: it has, or the caller is who changes it.
pub enum Beginning {}
impl Leave for Beginning {}

/// What a thread keeps of itself: the thread is the calling one, or rests, and won't go on before the caller lets it.
pub enum OwnThread {}
impl Leave for OwnThread {}
