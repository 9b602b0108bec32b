//! Room in a thread's block for what another room keeps of the thread. What it is, that room alone knows.

use crate::machine::guarded::Guarded;
use crate::thread::leave::OwnThread;
use core::mem::{align_of, size_of};

/// So many words; all zero at first.
#[repr(C, align(64))]
pub struct Area<const WORDS: usize>(Guarded<[u64; WORDS], OwnThread>);

impl<const WORDS: usize> Area<WORDS> {
    /// An area of zeros.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Area<WORDS> {
        Area(Guarded::new([0; WORDS]))
    }

    /// Where that is which it holds.
    #[inline(always)]
    pub fn at<T>(&self) -> *mut T {
        const { assert!(size_of::<T>() <= 8 * WORDS && align_of::<T>() <= 64) }
        self.0.at().cast()
    }

    /// What it holds, for whom the area is.
    ///
    /// # Safety
    /// A `T` was [put](Area::put) there, or is valid as zeros; and the caller has the leave [`OwnThread`].
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get<T>(&self) -> &mut T {
        // SAFETY: as the caller says; large enough and aligned, as asserted.
        unsafe { &mut *self.at() }
    }

    /// Puts something there. What was there before is forgotten.
    pub fn put<T>(&mut self, value: T) {
        // SAFETY: large enough and aligned, as asserted; nobody else has the area.
        unsafe { self.at::<T>().write(value) }
    }
}
