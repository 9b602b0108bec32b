//! What the fuzz targets of `fuzz/` do, with a few inputs and no fuzzer: they build, and they hold.

#[path = "../../../fuzz/src/bodies/mod.rs"]
mod bodies;

/// Bytes without a pattern.
fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn all_targets_hold() {
    let targets = [
        bodies::entries,
        bodies::manifest,
        bodies::pack,
        bodies::requests,
    ];
    for target in targets {
        target(b"");
        for how in 0..64 {
            let mut input = noise(how + 1, 40 * how as usize);
            input.insert(0, how as u8);
            target(&input);
        }
    }
}
