//! SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): numbers that look random, of a counter or of whatever they are
//! to depend on.

/// From one number of a sequence to the next, before they are [mixed](mix).
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Each bit of the result depends on each of `z`'s.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_sequence() {
        // Of seed 0, as the paper's own program prints it.
        let drawn = [1u64, 2, 3].map(|n| mix(n.wrapping_mul(GAMMA)));
        let known = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(drawn, known);
    }
}
