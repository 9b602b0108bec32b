//! A value that several threads reach, where no lock of its own keeps them apart: what does is said by a type.
//!
//! Threads of the runtime exclude each other by what the engine in force does (a baton, turns), by a lock that covers more than one table, or by
//! there being nobody else yet. The compiler sees none of that. So each such value names the leave that one must have to reach it, and each use says
//! why the caller has it. It is one type, so that there is one place to look for, and no second one (`crates/tidy` looks).

use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// Whose leave is needed: a type without values, whose documentation says who has the leave, and whom it excludes.
pub trait Leave {}

/// A `T` for whoever has the leave `L`. It has the layout of a `T`.
#[repr(transparent)]
pub struct Guarded<T, L> {
    value: UnsafeCell<T>,
    leave: PhantomData<fn() -> L>,
}

// SAFETY: without `unsafe` nobody gets more than its address; who uses that promises to have the leave, which only one thread has at a time.
unsafe impl<T: Send, L: Leave> Sync for Guarded<T, L> {}

impl<T, L: Leave> Guarded<T, L> {
    /// Guards a value.
    pub const fn new(value: T) -> Guarded<T, L> {
        Guarded {
            value: UnsafeCell::new(value),
            leave: PhantomData,
        }
    }

    /// Where it is, for those who look at parts of it by themselves.
    #[inline(always)]
    pub const fn at(&self) -> *mut T {
        self.value.get()
    }

    /// The value, to look at.
    ///
    /// # Safety
    /// The caller has the leave `L`, as far as it is needed to look; while the reference is in use, nobody changes the value.
    #[inline(always)]
    pub unsafe fn look(&self) -> &T {
        // SAFETY: as the caller says.
        unsafe { &*self.value.get() }
    }

    /// The value, to change.
    ///
    /// # Safety
    /// The caller has the leave `L`; while the reference is in use, there is no other one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn change(&self) -> &mut T {
        // SAFETY: as the caller says.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{align_of, size_of};

    enum Nobodys {}
    impl Leave for Nobodys {}

    #[test]
    fn a_guard_costs_no_room() {
        #[repr(align(64))]
        struct Wide(#[allow(dead_code)] u8);
        assert_eq!(size_of::<Guarded<[u16; 3], Nobodys>>(), 6);
        assert_eq!(align_of::<Guarded<Wide, Nobodys>>(), 64);
        static ONE: Guarded<u64, Nobodys> = Guarded::new(1);
        // SAFETY: this test's own.
        unsafe { *ONE.change() += 1 };
        // SAFETY: as above.
        assert_eq!(unsafe { (*ONE.look(), *ONE.at()) }, (2, 2));
    }
}
