//! Names of errors and signals, as people know them (errno(3), signal(7)), for x86-64.

macro_rules! names {
    ($(#[$doc:meta])* $module:ident: $type:ty, $prefix:literal, $list:ident; $($nr:literal $name:ident)*) => {
        $(#[$doc])*
        pub mod $module {
            $(
                #[doc = concat!($prefix, " ", $nr, ".")]
                pub const $name: $type = $nr;
            )*
        }

        const $list: &[($type, &str)] = &[$(($nr, stringify!($name))),*];
    };
}

names! {
    /// Error numbers, positive.
    errno: i32, "Error", ERRORS;
    1 EPERM 2 ENOENT 3 ESRCH 4 EINTR 5 EIO 6 ENXIO 7 E2BIG 8 ENOEXEC 9 EBADF 10 ECHILD
    11 EAGAIN 12 ENOMEM 13 EACCES 14 EFAULT 15 ENOTBLK 16 EBUSY 17 EEXIST 18 EXDEV 19 ENODEV 20 ENOTDIR
    21 EISDIR 22 EINVAL 23 ENFILE 24 EMFILE 25 ENOTTY 26 ETXTBSY 27 EFBIG 28 ENOSPC 29 ESPIPE 30 EROFS
    31 EMLINK 32 EPIPE 33 EDOM 34 ERANGE 35 EDEADLK 36 ENAMETOOLONG 37 ENOLCK 38 ENOSYS 39 ENOTEMPTY 40 ELOOP
    42 ENOMSG 43 EIDRM 44 ECHRNG 45 EL2NSYNC 46 EL3HLT 47 EL3RST 48 ELNRNG 49 EUNATCH 50 ENOCSI
    51 EL2HLT 52 EBADE 53 EBADR 54 EXFULL 55 ENOANO 56 EBADRQC 57 EBADSLT 59 EBFONT 60 ENOSTR
    61 ENODATA 62 ETIME 63 ENOSR 64 ENONET 65 ENOPKG 66 EREMOTE 67 ENOLINK 68 EADV 69 ESRMNT 70 ECOMM
    71 EPROTO 72 EMULTIHOP 73 EDOTDOT 74 EBADMSG 75 EOVERFLOW 76 ENOTUNIQ 77 EBADFD 78 EREMCHG 79 ELIBACC 80 ELIBBAD
    81 ELIBSCN 82 ELIBMAX 83 ELIBEXEC 84 EILSEQ 85 ERESTART 86 ESTRPIPE 87 EUSERS 88 ENOTSOCK 89 EDESTADDRREQ
    90 EMSGSIZE 91 EPROTOTYPE 92 ENOPROTOOPT 93 EPROTONOSUPPORT 94 ESOCKTNOSUPPORT 95 EOPNOTSUPP 96 EPFNOSUPPORT
    97 EAFNOSUPPORT 98 EADDRINUSE 99 EADDRNOTAVAIL 100 ENETDOWN 101 ENETUNREACH 102 ENETRESET 103 ECONNABORTED
    104 ECONNRESET 105 ENOBUFS 106 EISCONN 107 ENOTCONN 108 ESHUTDOWN 109 ETOOMANYREFS 110 ETIMEDOUT
    111 ECONNREFUSED 112 EHOSTDOWN 113 EHOSTUNREACH 114 EALREADY 115 EINPROGRESS 116 ESTALE 117 EUCLEAN 118 ENOTNAM
    119 ENAVAIL 120 EISNAM 121 EREMOTEIO 122 EDQUOT 123 ENOMEDIUM 124 EMEDIUMTYPE 125 ECANCELED 126 ENOKEY
    127 EKEYEXPIRED 128 EKEYREVOKED 129 EKEYREJECTED 130 EOWNERDEAD 131 ENOTRECOVERABLE 132 ERFKILL 133 EHWPOISON
    // These never reach a program; the runtime sees them when it looks at an interrupted call under ptrace.
    512 ERESTARTSYS 513 ERESTARTNOINTR 514 ERESTARTNOHAND 516 ERESTART_RESTARTBLOCK
}

names! {
    /// Signal numbers.
    signal: u32, "Signal", SIGNALS;
    1 SIGHUP 2 SIGINT 3 SIGQUIT 4 SIGILL 5 SIGTRAP 6 SIGABRT 7 SIGBUS 8 SIGFPE 9 SIGKILL 10 SIGUSR1
    11 SIGSEGV 12 SIGUSR2 13 SIGPIPE 14 SIGALRM 15 SIGTERM 16 SIGSTKFLT 17 SIGCHLD 18 SIGCONT 19 SIGSTOP 20 SIGTSTP
    21 SIGTTIN 22 SIGTTOU 23 SIGURG 24 SIGXCPU 25 SIGXFSZ 26 SIGVTALRM 27 SIGPROF 28 SIGWINCH 29 SIGIO 30 SIGPWR
    31 SIGSYS
}

/// The first real-time signal, as the kernel counts.
pub const SIGRTMIN: u32 = 32;
/// The last signal.
pub const SIGRTMAX: u32 = 64;

/// Names of the real-time signals, counted from the kernel's first (libc keeps some of them for itself).
const REAL_TIME: [&str; 33] = [
    "SIGRT_0", "SIGRT_1", "SIGRT_2", "SIGRT_3", "SIGRT_4", "SIGRT_5", "SIGRT_6", "SIGRT_7",
    "SIGRT_8", "SIGRT_9", "SIGRT_10", "SIGRT_11", "SIGRT_12", "SIGRT_13", "SIGRT_14", "SIGRT_15",
    "SIGRT_16", "SIGRT_17", "SIGRT_18", "SIGRT_19", "SIGRT_20", "SIGRT_21", "SIGRT_22", "SIGRT_23",
    "SIGRT_24", "SIGRT_25", "SIGRT_26", "SIGRT_27", "SIGRT_28", "SIGRT_29", "SIGRT_30", "SIGRT_31",
    "SIGRT_32",
];

/// The name of this error (positive, as in errno): `ENOENT` for 2.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    let at = ERRORS.binary_search_by_key(&errno, |&(nr, _)| nr).ok()?;
    Some(ERRORS[at].1)
}

/// The name of this signal: `SIGSEGV` for 11, `SIGRT_2` for 34.
pub fn signal_name(signal: u32) -> Option<&'static str> {
    if (SIGRTMIN..=SIGRTMAX).contains(&signal) {
        return Some(REAL_TIME[(signal - SIGRTMIN) as usize]);
    }
    let at = SIGNALS.binary_search_by_key(&signal, |&(nr, _)| nr).ok()?;
    Some(SIGNALS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number() {
        assert_eq!(errno_name(2), Some("ENOENT"));
        assert_eq!(errno_name(133), Some("EHWPOISON"));
        assert_eq!(errno_name(41), None);
        assert_eq!(errno_name(-2), None);
        assert_eq!(signal_name(0), None);
        assert_eq!(signal_name(11), Some("SIGSEGV"));
        assert_eq!(signal_name(31), Some("SIGSYS"));
        assert_eq!(signal_name(32), Some("SIGRT_0"));
        assert_eq!(signal_name(64), Some("SIGRT_32"));
        assert_eq!(signal_name(65), None);
    }

    #[test]
    fn lists_are_sorted_so_that_they_can_be_searched() {
        assert!(ERRORS.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(SIGNALS.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
