//! Size classes: which sizes of small blocks there are, and how many units of memory a slab of each takes.
//!
//! Up to 256 bytes there is a class every 16 bytes; beyond that there are eight for each doubling, so that no more than an eighth
//! of a block is lost to rounding.

use crate::UNIT;

/// Largest size of a block that lies in a slab; larger ones have a mapping of their own.
pub const SMALL_MAX: u64 = 256 << 10;
/// Number of classes.
pub const CLASSES: usize = 96;
/// Sizes up to this one find their class in a table.
pub const TABLE_MAX: u64 = 1024;
/// Classes up to this size are carved many blocks at a time, larger ones block by block.
pub const CARVED_TOGETHER: u32 = 1024;

/// Spacing of the smallest classes, and the alignment of every block.
pub const GRAIN: u64 = 16;
/// Classes that are spaced by the grain.
const EVEN: usize = 16;

/// What is known of a class.
#[derive(Clone, Copy)]
pub struct Class {
    /// See [`divides`].
    pub magic: u64,
    /// Bytes of a block.
    pub size: u32,
    /// Blocks of a slab.
    pub capacity: u16,
    /// Units of a slab.
    pub units: u8,
}

/// The class of blocks of this many bytes (at most [`SMALL_MAX`]).
#[inline(always)]
pub const fn class_of(size: u64) -> usize {
    if size <= EVEN as u64 * GRAIN {
        return (size.saturating_sub(1) / GRAIN) as usize;
    }
    let n = size - 1;
    let power = n.ilog2();
    EVEN + (power as usize - 8) * 8 + ((n >> (power - 3)) & 7) as usize
}

const fn size_of_class(class: usize) -> u64 {
    if class < EVEN {
        return GRAIN * (class as u64 + 1);
    }
    let (group, step) = ((class - EVEN) / 8, (class - EVEN) % 8);
    (256 << group) + (32 << group) * (step as u64 + 1)
}

/// Units of a slab: enough for eight small blocks, for one of the largest.
const fn units_of(size: u64) -> u64 {
    let blocks = match size {
        0..=0x800 => 8,
        0x801..=0x2000 => 4,
        0x2001..=0x8000 => 2,
        _ => 1,
    };
    (blocks * size).div_ceil(UNIT)
}

/// All classes.
pub static CLASS: [Class; CLASSES] = {
    let mut all = [Class {
        magic: 0,
        size: 0,
        capacity: 0,
        units: 0,
    }; CLASSES];
    let mut i = 0;
    while i < CLASSES {
        let size = size_of_class(i);
        let units = units_of(size);
        all[i] = Class {
            magic: u64::MAX / size + 1,
            size: size as u32,
            capacity: (units * UNIT / size) as u16,
            units: units as u8,
        };
        assert!(class_of(size) == i && class_of(size - GRAIN + 1) == i);
        assert!(units <= 16 && size % GRAIN == 0);
        i += 1;
    }
    assert!(all[CLASSES - 1].size as u64 == SMALL_MAX);
    all
};

/// The class of each size up to [`TABLE_MAX`], by the number of grains.
pub static BY_GRAINS: [u8; (TABLE_MAX / GRAIN) as usize + 1] = {
    let mut all = [0; (TABLE_MAX / GRAIN) as usize + 1];
    let mut i = 0;
    while i < all.len() {
        all[i] = class_of(i as u64 * GRAIN) as u8;
        i += 1;
    }
    all
};

/// Is `offset` a multiple of the size that has this magic number? Exact for 32-bit offsets (Lemire, Kaser, Kurz: "Faster remainder
/// by direct computation", 2019).
#[inline(always)]
pub const fn divides(magic: u64, offset: u64) -> bool {
    offset.wrapping_mul(magic) < magic
}

/// The smallest class whose blocks have at least `size` bytes and lie at multiples of `align` (a power of two, at most [`UNIT`]).
pub fn aligned_class(size: u64, align: u64) -> Option<usize> {
    if size > SMALL_MAX || align > UNIT {
        return None;
    }
    (class_of(size)..CLASSES).find(|&c| CLASS[c].size as u64 % align == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_finds_the_smallest_class_that_holds_it() {
        for size in 0..=SMALL_MAX {
            let c = class_of(size);
            assert!(CLASS[c].size as u64 >= size);
            assert!(c == 0 || (CLASS[c - 1].size as u64) < size);
            if size <= TABLE_MAX {
                assert_eq!(BY_GRAINS[size.div_ceil(GRAIN) as usize] as usize, c);
            }
        }
    }

    #[test]
    fn no_more_than_an_eighth_is_lost() {
        for size in 129..=SMALL_MAX {
            let given = CLASS[class_of(size)].size as u64;
            assert!((given - size) * 8 <= given, "{size} gets {given}");
        }
    }

    #[test]
    fn multiples_are_told_from_others() {
        for c in &CLASS {
            for offset in 0..c.units as u64 * UNIT {
                assert_eq!(
                    divides(c.magic, offset),
                    offset % c.size as u64 == 0,
                    "{} in {offset}",
                    c.size
                );
            }
        }
    }

    #[test]
    fn every_alignment_up_to_a_unit_has_a_class() {
        for power in 4..=14 {
            for size in [0, 1, 100, 5000, 70_000, SMALL_MAX - 1, SMALL_MAX] {
                let c = aligned_class(size, 1 << power).expect("a power of two always fits");
                assert!(CLASS[c].size as u64 >= size && CLASS[c].size as u64 % (1 << power) == 0);
            }
        }
        assert_eq!(aligned_class(1, 2 * UNIT), None);
        assert_eq!(aligned_class(SMALL_MAX + 1, 16), None);
    }
}
