//! The auxiliary vector: what the kernel tells a program of the machine, without what it must not use. The copy that
//! /proc/self/auxv shows is changed together with the one on the stack (getauxval(3), proc_pid_auxv(5)).

use crate::error::{LaunchError, Result};
use crate::proc_files::Stat;
use crate::remote::{Calls, MAY_FAIL};
use crate::tracee::Tracee;
use libc::user_regs_struct;
use reprise_abi::layout::PAGE;

const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_HWCAP2: u64 = 26;
/// Size and alignment of the area for restartable sequences, which the program can't have.
const AT_RSEQ: [u64; 2] = [27, 28];
const AT_SYSINFO_EHDR: u64 = 33;
/// The program may use FSGSBASE: it may not, %gs belongs to the runtime.
const HWCAP2_FSGSBASE: u64 = 2;

/// Most entries of an auxiliary vector.
const MAX_ENTRIES: usize = 64;

/// Takes out of the auxiliary vector what the program must not use: a vDSO that isn't at `ours`, FSGSBASE, rseq. Adds the call that makes
/// the kernel's copy the same.
///
/// # Errors
/// When the program's memory can't be read or written, or the vector makes no sense.
pub(crate) fn hide(
    tracee: &Tracee,
    entry: &user_regs_struct,
    ours: Option<u64>,
    calls: &mut Calls,
) -> Result<()> {
    let (start, mut entries) = find(tracee, entry.rsp)?;
    for e in &mut entries {
        mask(e, ours);
    }
    let bytes: Vec<u8> = entries
        .iter()
        .flatten()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    tracee.write(start, &bytes)?;
    tell_kernel(tracee, start, bytes.len() as u64, calls)
}

fn mask(entry: &mut [u64; 2], ours: Option<u64>) {
    match entry[0] {
        AT_SYSINFO_EHDR if Some(entry[1]) != ours => entry[0] = AT_IGNORE,
        k if AT_RSEQ.contains(&k) => entry[0] = AT_IGNORE,
        AT_HWCAP2 => entry[1] &= !HWCAP2_FSGSBASE,
        _ => {}
    }
}

/// Words that are read at a time.
const CHUNK: u64 = 256;

/// Words of the stack, from its lowest on, read as they are needed.
struct Words<'a> {
    tracee: &'a Tracee,
    at: u64,
    read: Vec<u64>,
}

impl Words<'_> {
    fn word(&mut self, i: usize) -> Result<u64> {
        while self.read.len() <= i {
            let at = self.at + 8 * self.read.len() as u64;
            // Not beyond a page that is there: the stack ends somewhere.
            let len = (PAGE - at % PAGE).min(8 * CHUNK) as usize;
            let mut bytes = vec![0; len];
            self.tracee.read(at, &mut bytes)?;
            let words = bytes.chunks_exact(8).map(|b| {
                let mut word = [0; 8];
                word.copy_from_slice(b);
                u64::from_le_bytes(word)
            });
            self.read.extend(words);
        }
        Ok(self.read[i])
    }
}

/// Where it is, and its entries, the last one included. It lies behind the arguments and the environment, each closed by a zero word.
fn find(tracee: &Tracee, sp: u64) -> Result<(u64, Vec<[u64; 2]>)> {
    let mut words = Words {
        tracee,
        at: sp,
        read: Vec::new(),
    };
    let mut i = words.word(0)? as usize + 2;
    while words.word(i)? != 0 {
        i += 1;
    }
    i += 1;
    let start = sp + 8 * i as u64;
    let mut entries = Vec::new();
    while entries.len() < MAX_ENTRIES {
        entries.push([words.word(i)?, words.word(i + 1)?]);
        i += 2;
        if entries.last().is_some_and(|e| e[0] == AT_NULL) {
            return Ok((start, entries));
        }
    }
    Err(LaunchError::Unsupported(format!(
        "an auxiliary vector of more than {MAX_ENTRIES} entries"
    )))
}

/// Makes the kernel's own copy the same, by PR_SET_MM_MAP, which needs no privilege. A kernel without it (it comes with
/// CONFIG_CHECKPOINT_RESTORE) keeps the old copy: only /proc/self/auxv shows that.
fn tell_kernel(tracee: &Tracee, at: u64, len: u64, calls: &mut Calls) -> Result<()> {
    const PR_SET_MM_MAP: u64 = 14;
    /// Fields of /proc/PID/stat, in the order of `struct prctl_mm_map`: code, data, start_brk, brk; stack; arguments, environment. No
    /// field shows brk, which is where it starts as long as the program has not run.
    const FIELDS: [usize; 11] = [26, 27, 45, 46, 47, 47, 28, 48, 49, 50, 51];
    let stat = Stat::of_process(tracee.pid).map_err(|source| LaunchError::Os {
        what: format!("read /proc/{}/stat", tracee.pid),
        source,
    })?;
    let Some(mut map) = FIELDS
        .iter()
        .map(|n| stat.field(*n))
        .collect::<Option<Vec<u64>>>()
    else {
        return Ok(());
    };
    // The vector, its length, and no other program file (-1).
    map.extend([at, len | 0xffff_ffff << 32]);
    let bytes: Vec<u8> = map.iter().flat_map(|w| w.to_le_bytes()).collect();
    let (data, size) = (calls.data(&bytes), bytes.len() as u64);
    let args = [libc::PR_SET_MM as u64, PR_SET_MM_MAP, data, size, 0, 0];
    calls.add(libc::SYS_prctl, args, MAY_FAIL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_used_is_masked() {
        let masked = |mut e: [u64; 2]| {
            mask(&mut e, Some(0x7000));
            e
        };
        assert_eq!(masked([AT_SYSINFO_EHDR, 0x7000]), [AT_SYSINFO_EHDR, 0x7000]);
        assert_eq!(masked([AT_SYSINFO_EHDR, 0x8000]), [AT_IGNORE, 0x8000]);
        assert_eq!(masked([AT_HWCAP2, 3]), [AT_HWCAP2, 1]);
        assert_eq!(masked([27, 28]), [AT_IGNORE, 28]);
        assert_eq!(masked([25, 27]), [25, 27]);
    }
}
