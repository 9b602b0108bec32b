//! The allocator as programs see it.

mod misuse;
mod one;
mod several;

/// Bytes of a block that are written and compared: all of a small one, the ends of a large one.
fn checked(size: u64) -> impl Iterator<Item = u64> {
    (0..size.min(512)).chain(size.saturating_sub(512).max(512.min(size))..size)
}

fn pattern(seed: u64, offset: u64) -> u8 {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8 ^ (offset as u8).wrapping_mul(31)
}

/// Writes what [`has`] finds.
fn fill(p: u64, size: u64, seed: u64) {
    for i in checked(size) {
        // SAFETY: a block of the test.
        unsafe { *((p + i) as *mut u8) = pattern(seed, i) };
    }
}

/// Does a block still have what was written, in its first `size` bytes of `of`?
fn has(p: u64, size: u64, of: u64, seed: u64) -> bool {
    // SAFETY: a block of the test.
    let byte = |i: u64| unsafe { *((p + i) as *const u8) };
    checked(of)
        .filter(|&i| i < size)
        .all(|i| byte(i) == pattern(seed, i))
}

fn is_zero(p: u64, size: u64) -> bool {
    // SAFETY: a block of the test.
    let all = unsafe { core::slice::from_raw_parts(p as *const u8, size as usize) };
    all.iter().all(|&b| b == 0)
}
