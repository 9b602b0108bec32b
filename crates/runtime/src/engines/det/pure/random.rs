//! Random bytes under `--pure`: each thread draws from a stream of its own, which follows from the seed, the thread's id, its time and how much it has
//! drawn. Nothing secret may be made of them.

use crate::machine::guard;
use crate::machine::{split_mix, sys};
use crate::memory::capture::Call;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;

const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// The most that getrandom(2) gives.
const MOST: u64 = 0x1ff_ffff;

/// The next word (splitmix64 of what it depends on).
pub fn word(t: &mut Block) -> u64 {
    t.det().pure.drawn += 1;
    let id = u64::from(t.slot().visible_tid.load(Relaxed));
    let depends = [
        session().det_seed,
        id,
        t.det().pure.clock.now(),
        t.det().pure.drawn,
    ];
    depends.iter().fold(0, |h, word| mix(h ^ word))
}

fn mix(n: u64) -> u64 {
    split_mix::mix(n.wrapping_add(split_mix::GAMMA))
}

/// Fills the program's memory; whether it could.
pub fn fill(t: &mut Block, at: u64, len: usize) -> bool {
    let mut done = 0;
    while done < len {
        let bytes = word(t).to_le_bytes();
        let n = (len - done).min(bytes.len());
        if !guard::write_bytes(at + done as u64, &bytes[..n]) {
            return false;
        }
        done += n;
    }
    true
}

/// getrandom(2).
pub fn getrandom(t: &mut Block, c: &Call) -> i64 {
    /// GRND_NONBLOCK, GRND_RANDOM, GRND_INSECURE
    const FLAGS: u64 = 7;
    if c.args[2] as u32 as u64 & !FLAGS != 0 {
        return EINVAL;
    }
    let len = c.args[1].min(MOST);
    match fill(t, c.args[0], len as usize) {
        true => len as i64,
        false => EFAULT,
    }
}

/// The program reads this descriptor: is it the device with random bytes?
pub fn is_device(fd: u64) -> bool {
    // struct stat; st_mode is in the fourth word, st_rdev the sixth.
    let mut stat = [0u64; 18];
    if sys::fstat(fd, stat.as_mut_ptr() as u64) != 0 {
        return false;
    }
    let is_character = stat[3] as u32 & 0o170_000 == 0o020_000;
    // Memory's devices are the first: 8 is random, 9 urandom.
    is_character && matches!(stat[5], 0x108 | 0x109)
}

/// Puts our bytes into what a call has read from the device.
pub fn replace(t: &mut Block, c: &Call, result: i64) {
    let mut filled = true;
    c.outputs(result, |o| filled &= fill(t, o.local, o.len));
}

/// At a program's first instruction: the bytes that the kernel has put on its stack (AT_RANDOM).
pub fn fill_at_start(t: &mut Block) {
    const AT_RANDOM: u64 = 25;
    const AT_RANDOM_LEN: usize = 16;
    /// Words on the stack below the auxiliary vector, at most.
    const MOST_WORDS: u64 = 1 << 20;
    let sp = session().initial_sp;
    let word = |i: u64| guard::read::<u64>(sp + 8 * i).unwrap_or(0);
    let mut i = word(0) + 2;
    while word(i) != 0 && i < MOST_WORDS {
        i += 1;
    }
    i += 1;
    while word(i) != 0 && i < MOST_WORDS {
        if word(i) == AT_RANDOM {
            fill(t, word(i + 1), AT_RANDOM_LEN);
        }
        i += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ() {
        let all: std::collections::BTreeSet<u64> = (0..1000).map(mix).collect();
        assert_eq!(all.len(), 1000);
    }
}
