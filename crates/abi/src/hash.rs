//! A fast hash without vector registers, for memory pages and call inputs.
//!
//! One 64×64→128-bit multiplication per 16 bytes, folded, in two or four chains. It only has to tell accidents apart; whoever wants to forge a
//! trace owns the trace anyway. Its values are part of the trace format.

const K: [u64; 4] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0xd6e8_feb8_6659_fd93,
];

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let m = (a as u128).wrapping_mul(b as u128);
    (m as u64) ^ ((m >> 64) as u64)
}

#[inline(always)]
unsafe fn word(p: u64) -> u64 {
    // SAFETY: as the callers of this module say.
    unsafe { core::ptr::read_unaligned(p as *const u64) }
}

/// Hash of `len` bytes at `address`, continuing from `seed`.
///
/// # Safety
/// The bytes must be readable, or the caller survives that they are not (the runtime guards such accesses).
pub unsafe fn bytes(seed: u64, address: u64, len: usize) -> u64 {
    let (mut a, mut b) = (seed ^ K[0] ^ len as u64, seed.rotate_left(32) ^ K[1]);
    let mut p = address;
    let end = address + len as u64;
    if len >= 128 {
        // Four independent chains: a multiplication takes longer than the next can wait.
        let (mut c, mut d) = (a ^ K[2], b ^ K[3]);
        while end - p >= 64 {
            // SAFETY: inside the range.
            unsafe {
                a = fold(word(p) ^ a, word(p + 8) ^ K[3]).wrapping_add(a.rotate_left(29));
                b = fold(word(p + 16) ^ b, word(p + 24) ^ K[2]).wrapping_add(b.rotate_left(31));
                c = fold(word(p + 32) ^ c, word(p + 40) ^ K[1]).wrapping_add(c.rotate_left(27));
                d = fold(word(p + 48) ^ d, word(p + 56) ^ K[0]).wrapping_add(d.rotate_left(33));
            }
            p += 64;
        }
        a = fold(a ^ c, K[1]).wrapping_add(c);
        b = fold(b ^ d, K[0]).wrapping_add(d);
    }
    while end - p >= 32 {
        // SAFETY: inside the range.
        unsafe {
            a = fold(word(p) ^ a ^ K[2], word(p + 8) ^ K[3]).wrapping_add(a.rotate_left(29));
            b = fold(word(p + 16) ^ b ^ K[3], word(p + 24) ^ K[2]).wrapping_add(b.rotate_left(31));
        }
        p += 32;
    }
    while end - p >= 8 {
        // SAFETY: inside the range.
        a = fold(unsafe { word(p) } ^ a, K[2]).wrapping_add(b);
        p += 8;
    }
    let mut last = 0;
    let mut shift = 0;
    while p < end {
        // SAFETY: inside the range.
        last |= (unsafe { core::ptr::read(p as *const u8) } as u64) << shift;
        shift += 8;
        p += 1;
    }
    b = fold(last ^ b, K[3]).wrapping_add(a);
    fold(a ^ K[0], b ^ K[1])
}

/// Chains of [`long`].
const CHAINS: usize = 8;
/// Bytes that they take in at a time.
const ROUND: usize = 16 * CHAINS;

/// Another hash, of `len` bytes at `address`, for stretches that are read once, as fast as they can be.
///
/// So many chains that a processor always finds a multiplication whose operands are there, and nothing beside the multiplication in a chain: of what
/// lies in the second cache it was measured at 20 to 38 GB/s, where [`bytes`] had 15 to 21 in the same minutes.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn long(address: u64, len: usize) -> u64 {
    let mut p = address;
    let end = address + len as u64;
    let mut sum = len as u64;
    if len >= ROUND {
        let mut chains: [u64; CHAINS] = core::array::from_fn(|i| K[i % 4].rotate_left(i as u32));
        while end - p >= ROUND as u64 {
            for (i, chain) in chains.iter_mut().enumerate() {
                let at = p + 16 * i as u64;
                // SAFETY: inside the range.
                *chain = unsafe { fold(word(at) ^ *chain, word(at + 8) ^ K[(i + 1) % 4]) };
            }
            p += ROUND as u64;
        }
        for (i, chain) in chains.iter().enumerate() {
            sum = fold(sum ^ chain, K[i % 4]).wrapping_add(*chain);
        }
    }
    // SAFETY: what is left of the range.
    unsafe { bytes(sum, p, (end - p) as usize) }
}

/// From how many bytes on [`long`] gains more than its chains cost at the end.
const IS_LONG: usize = 2048;

/// Hash of what a call reads, continuing from `seed`: [`bytes`] of a little, [`long`] of much.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn input(seed: u64, address: u64, len: usize) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        match len < IS_LONG {
            true => bytes(seed, address, len),
            false => words(seed, &[long(address, len)]),
        }
    }
}

/// Hash of a few words.
pub fn words(seed: u64, w: &[u64]) -> u64 {
    // SAFETY: a slice is readable.
    unsafe { bytes(seed, w.as_ptr() as u64, core::mem::size_of_val(w)) }
}

/// Are all bytes of this page zero?
///
/// # Safety
/// As for [`bytes`]; `page` must be 8-byte aligned.
pub unsafe fn is_zero_page(page: u64) -> bool {
    let mut p = page;
    while p < page + 4096 {
        // SAFETY: inside the page.
        let any = unsafe { word(p) | word(p + 8) | word(p + 16) | word(p + 24) };
        if any != 0 {
            return false;
        }
        p += 32;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_bit_and_the_length_count_of(hash: unsafe fn(u64, usize) -> u64) {
        let mut v = std::vec![0u8; 300];
        // SAFETY: a vector is readable.
        let h = |v: &[u8]| unsafe { hash(v.as_ptr() as u64, v.len()) };
        let zero = h(&v);
        assert_ne!(zero, h(&v[..299]));
        for bit in 0..2400 {
            v[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(zero, h(&v), "bit {bit}");
            v[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(zero, h(&v));
    }

    #[test]
    fn every_bit_and_the_length_count() {
        every_bit_and_the_length_count_of(|at, len| unsafe { bytes(1, at, len) });
        every_bit_and_the_length_count_of(long);
    }

    /// What was read before counts, whichever of the two follows.
    #[test]
    fn inputs_continue() {
        let v = std::vec![7u8; IS_LONG];
        for len in [16, IS_LONG - 1, IS_LONG] {
            // SAFETY: a vector is readable.
            let h = |seed| unsafe { input(seed, v.as_ptr() as u64, len) };
            assert_ne!(h(0), h(1), "{len}");
        }
    }

    /// Bytes that change places are seen, within a chain and between chains.
    #[test]
    fn the_order_counts() {
        let v: std::vec::Vec<u8> = (0..1024u32).map(|i| (i / 8 % 251) as u8).collect();
        // SAFETY: a vector is readable.
        let h = |v: &[u8]| unsafe { long(v.as_ptr() as u64, v.len()) };
        for (a, b) in [(0, 8), (0, 16), (16, 112), (0, 128), (24, 40), (512, 896)] {
            let mut other = v.clone();
            (0..8).for_each(|i| other.swap(a + i, b + i));
            assert_ne!(h(&v), h(&other), "{a} and {b}");
        }
    }
}
