//! Atomic words whose accesses are steps of a schedule.

use super::{access, Access, Kind};
use core::sync::atomic::{self, Ordering};

macro_rules! word {
    ($name:ident, $of:ty) => {
        /// As the processor's, and laid out like it.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name(atomic::$name);

        #[allow(missing_docs, dead_code)]
        impl $name {
            pub const fn new(v: $of) -> Self {
                Self(atomic::$name::new(v))
            }

            pub const fn as_ptr(&self) -> *mut $of {
                self.0.as_ptr()
            }

            fn access(
                &self,
                kind: Kind,
                order: Ordering,
                change: impl FnMut(u64) -> Option<u64>,
            ) -> u64 {
                let what = Access {
                    address: self.0.as_ptr() as usize,
                    bytes: core::mem::size_of::<$of>(),
                    kind,
                    sequential: order == Ordering::SeqCst,
                };
                access(what, change)
            }

            pub fn load(&self, order: Ordering) -> $of {
                self.access(Kind::Load, order, |_| None) as $of
            }

            pub fn store(&self, v: $of, order: Ordering) {
                self.access(Kind::Store, order, |_| Some(v.into()));
            }

            fn update(&self, f: impl Fn($of) -> $of) -> $of {
                self.access(Kind::Update, Ordering::SeqCst, |v| Some(f(v as $of).into())) as $of
            }

            pub fn swap(&self, v: $of, _: Ordering) -> $of {
                self.update(|_| v)
            }

            pub fn fetch_add(&self, v: $of, _: Ordering) -> $of {
                self.update(|w| w.wrapping_add(v))
            }

            pub fn fetch_sub(&self, v: $of, _: Ordering) -> $of {
                self.update(|w| w.wrapping_sub(v))
            }

            pub fn fetch_or(&self, v: $of, _: Ordering) -> $of {
                self.update(|w| w | v)
            }

            pub fn fetch_and(&self, v: $of, _: Ordering) -> $of {
                self.update(|w| w & v)
            }

            pub fn fetch_max(&self, v: $of, _: Ordering) -> $of {
                self.update(|w| w.max(v))
            }

            pub fn compare_exchange(
                &self,
                old: $of,
                new: $of,
                _: Ordering,
                _: Ordering,
            ) -> Result<$of, $of> {
                let was = self.access(Kind::Update, Ordering::SeqCst, |v| {
                    (v as $of == old).then_some(new.into())
                }) as $of;
                match was == old {
                    true => Ok(was),
                    false => Err(was),
                }
            }

            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                let mut was = self.load(fetch);
                while let Some(next) = f(was) {
                    match self.compare_exchange(was, next, set, fetch) {
                        Ok(v) => return Ok(v),
                        Err(v) => was = v,
                    }
                }
                Err(was)
            }
        }
    };
}

word!(AtomicU8, u8);
word!(AtomicU32, u32);
word!(AtomicU64, u64);
