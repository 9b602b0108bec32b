//! See `fuzz_targets/names.rs`.

use reprise_place::name::{Name, MAX_NAME};

/// Reads `data` as the name of a state.
pub fn names(data: &[u8]) {
    let Ok(name) = Name::parse(data) else {
        return;
    };
    let mut again = [0; MAX_NAME];
    let len = name
        .to_bytes(&mut again)
        .expect("a name that was read has room");
    // No two strings of bytes mean the same.
    assert_eq!(&again[..len], data);
    assert!(format!("{name} {name:#}").len() < 64 << 10);
}
