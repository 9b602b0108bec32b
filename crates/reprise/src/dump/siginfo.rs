//! `siginfo_t` (sigaction(2)): why a signal came.

use reprise_abi::names::signal_name;

/// Bytes of a siginfo.
const LEN: usize = 128;

/// The meaning of `si_code` that all signals share.
fn general(code: i32) -> Option<&'static str> {
    Some(match code {
        0 => "SI_USER",
        0x80 => "SI_KERNEL",
        -1 => "SI_QUEUE",
        -2 => "SI_TIMER",
        -3 => "SI_MESGQ",
        -4 => "SI_ASYNCIO",
        -5 => "SI_SIGIO",
        -6 => "SI_TKILL",
        -7 => "SI_DETHREAD",
        -60 => "SI_ASYNCNL",
        _ => return None,
    })
}

/// The name of a `si_code`, given the signal.
pub fn code_name(signal: u32, code: i32) -> Option<&'static str> {
    if let Some(name) = general(code) {
        return Some(name);
    }
    let list: &[&str] = match signal {
        4 => &[
            "ILL_ILLOPC",
            "ILL_ILLOPN",
            "ILL_ILLADR",
            "ILL_ILLTRP",
            "ILL_PRVOPC",
            "ILL_PRVREG",
            "ILL_COPROC",
            "ILL_BADSTK",
        ],
        5 => &[
            "TRAP_BRKPT",
            "TRAP_TRACE",
            "TRAP_BRANCH",
            "TRAP_HWBKPT",
            "TRAP_UNK",
            "TRAP_PERF",
        ],
        7 => &[
            "BUS_ADRALN",
            "BUS_ADRERR",
            "BUS_OBJERR",
            "BUS_MCEERR_AR",
            "BUS_MCEERR_AO",
        ],
        8 => &[
            "FPE_INTDIV",
            "FPE_INTOVF",
            "FPE_FLTDIV",
            "FPE_FLTOVF",
            "FPE_FLTUND",
            "FPE_FLTRES",
            "FPE_FLTINV",
            "FPE_FLTSUB",
        ],
        11 => &["SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR"],
        17 => &[
            "CLD_EXITED",
            "CLD_KILLED",
            "CLD_DUMPED",
            "CLD_TRAPPED",
            "CLD_STOPPED",
            "CLD_CONTINUED",
        ],
        29 => &[
            "POLL_IN", "POLL_OUT", "POLL_MSG", "POLL_ERR", "POLL_PRI", "POLL_HUP",
        ],
        31 => &["SYS_SECCOMP", "SYS_USER_DISPATCH"],
        _ => &[],
    };
    let at = usize::try_from(code).ok()?.checked_sub(1)?;
    list.get(at).copied()
}

/// All that a siginfo says; None when the bytes are none.
pub fn describe(b: &[u8]) -> Option<String> {
    if b.len() < LEN {
        return None;
    }
    let word = |at: usize| i32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    let long = |at: usize| u64::from(word(at) as u32) | u64::from(word(at + 4) as u32) << 32;
    let (signal, errno, code) = (word(0), word(4), word(8));
    let name = u32::try_from(signal).ok().and_then(signal_name);
    let mut text = match name {
        Some(name) => format!("{{si_signo={name}"),
        None => format!("{{si_signo={signal}"),
    };
    match code_name(signal as u32, code) {
        Some(name) => text.push_str(&format!(", si_code={name}")),
        None => text.push_str(&format!(", si_code={code}")),
    }
    if errno != 0 {
        text.push_str(&format!(", si_errno={errno}"));
    }
    let sender = || format!(", si_pid={}, si_uid={}", word(16), word(20) as u32);
    text.push_str(&match (signal, code) {
        (_, -2) => format!(
            ", si_timerid={}, si_overrun={}, si_value={:#x}",
            word(16),
            word(20),
            long(24)
        ),
        (_, -1 | -3 | -4) => format!("{}, si_value={:#x}", sender(), long(24)),
        (_, 0 | -6) => sender(),
        (4 | 5 | 7 | 8 | 11, _) => format!(", si_addr={:#x}", long(16)),
        (17, _) => format!("{}, si_status={}", sender(), word(24)),
        (29, _) => format!(", si_band={}, si_fd={}", long(16) as i64, word(24)),
        (31, _) => format!(", si_call_addr={:#x}, si_syscall={}", long(16), word(24)),
        _ => String::new(),
    });
    text.push('}');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(words: &[(usize, i32)]) -> Vec<u8> {
        let mut b = vec![0; LEN];
        for (at, word) in words {
            b[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        b
    }

    #[test]
    fn reasons() {
        let fault = info(&[(0, 11), (8, 1), (16, 0x10)]);
        assert_eq!(
            describe(&fault).unwrap(),
            "{si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0x10}"
        );
        let sent = info(&[(0, 10), (8, -6), (16, 7), (20, 1000)]);
        assert_eq!(
            describe(&sent).unwrap(),
            "{si_signo=SIGUSR1, si_code=SI_TKILL, si_pid=7, si_uid=1000}"
        );
        let timer = info(&[(0, 14), (8, -2), (16, 1), (24, 5)]);
        assert_eq!(
            describe(&timer).unwrap(),
            "{si_signo=SIGALRM, si_code=SI_TIMER, si_timerid=1, si_overrun=0, si_value=0x5}"
        );
        let child = info(&[(0, 17), (8, 1), (16, 9), (24, 3)]);
        assert_eq!(
            describe(&child).unwrap(),
            "{si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9, si_uid=0, si_status=3}"
        );
    }

    #[test]
    fn nonsense_is_shown_as_numbers() {
        let odd = info(&[(0, -5), (4, 2), (8, 77)]);
        assert_eq!(
            describe(&odd).unwrap(),
            "{si_signo=-5, si_code=77, si_errno=2}"
        );
        assert_eq!(describe(&[0; 127]), None);
        assert_eq!(code_name(11, i32::MIN), None);
        assert_eq!(code_name(11, 99), None);
    }
}
