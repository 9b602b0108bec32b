//! What the file behind a descriptor is known by.

use crate::machine::sys;

/// What a file is known by while it is open or mapped, as the agent computes it; 0 for what can't be mapped.
pub fn identity(stat: &[u64; 18]) -> u64 {
    const S_IFMT: u64 = 0o170000;
    const S_IFREG: u64 = 0o100000;
    // st_dev, st_ino, st_nlink, st_mode.
    match stat[3] & S_IFMT {
        S_IFREG => reprise_abi::session::file_identity(stat[0], stat[1]),
        _ => 0,
    }
}

/// The identity of the file behind a descriptor.
pub fn identity_of(fd: u64) -> u64 {
    stat_of(fd).map_or(0, |stat| identity(&stat))
}

/// `struct stat` of the file behind a descriptor.
pub fn stat_of(fd: u64) -> Option<[u64; 18]> {
    let mut stat = [0u64; 18];
    (sys::fstat(fd, stat.as_mut_ptr() as u64) == 0).then_some(stat)
}
