//! What the kernel's structures hold, in the words of their man pages. Which argument of which call points to what is said here;
//! how large it is, the syscall table says. Bytes that are shorter than their structure are shown as what they are: bytes.

use super::text::quoted;
use reprise_abi::names::signal_name;
use reprise_abi::syscalls::flag_name;
use reprise_abi::syscalls::flags::{write_flags, List, AF};
use std::net::{Ipv4Addr, Ipv6Addr};

const POLL: List = &[
    (1, "POLLIN"),
    (2, "POLLPRI"),
    (4, "POLLOUT"),
    (8, "POLLERR"),
    (0x10, "POLLHUP"),
    (0x20, "POLLNVAL"),
    (0x40, "POLLRDNORM"),
    (0x80, "POLLRDBAND"),
    (0x100, "POLLWRNORM"),
    (0x200, "POLLWRBAND"),
    (0x400, "POLLMSG"),
    (0x2000, "POLLRDHUP"),
];

const EPOLL: List = &[
    (1, "EPOLLIN"),
    (2, "EPOLLPRI"),
    (4, "EPOLLOUT"),
    (8, "EPOLLERR"),
    (0x10, "EPOLLHUP"),
    (0x40, "EPOLLRDNORM"),
    (0x80, "EPOLLRDBAND"),
    (0x100, "EPOLLWRNORM"),
    (0x200, "EPOLLWRBAND"),
    (0x2000, "EPOLLRDHUP"),
    (0x1000_0000, "EPOLLEXCLUSIVE"),
    (0x2000_0000, "EPOLLWAKEUP"),
    (0x4000_0000, "EPOLLONESHOT"),
    (0x8000_0000, "EPOLLET"),
];

const FILE_TYPES: List = &[
    (0o010000, "S_IFIFO"),
    (0o020000, "S_IFCHR"),
    (0o040000, "S_IFDIR"),
    (0o060000, "S_IFBLK"),
    (0o100000, "S_IFREG"),
    (0o120000, "S_IFLNK"),
    (0o140000, "S_IFSOCK"),
];

/// Most entries of an array that are shown.
const MAX_SHOWN: usize = 16;

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

fn i32_at(b: &[u8], at: usize) -> Option<i32> {
    u32_at(b, at).map(|v| v as i32)
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

fn i64_at(b: &[u8], at: usize) -> Option<i64> {
    u64_at(b, at).map(|v| v as i64)
}

/// What `bytes`, behind the argument `arg` of `call`, hold; None when no structure of ours fits.
pub fn describe(call: &str, arg: &str, bytes: &[u8]) -> Option<String> {
    match (call, arg, bytes.len()) {
        (_, "statbuf", 144) => stat(bytes),
        (_, "statxbuf", 256) => statx(bytes),
        ("gettimeofday" | "settimeofday" | "select", "tv" | "timeout", 16) => timeval(bytes),
        (_, "tp" | "rem" | "remain" | "res" | "timeout" | "duration" | "request", 16) => {
            timespec(bytes)
        }
        ("getitimer" | "setitimer", _, 32) => interval(bytes, timeval),
        (_, "curr_value" | "old_value" | "new_value", 32) => interval(bytes, timespec),
        (_, "pipefd" | "sv", 8) => Some(format!("[{}, {}]", i32_at(bytes, 0)?, i32_at(bytes, 4)?)),
        (_, "rlim" | "old_limit" | "new_limit", 16) => rlimit(bytes),
        ("poll" | "ppoll", "fds", _) => array(bytes, 8, pollfd),
        (_, "events", _) if call.starts_with("epoll") => array(bytes, 12, epoll_event),
        ("epoll_ctl", "event", 12) => epoll_event(bytes),
        (_, "addr" | "src_addr" | "dest_addr", _) => sockaddr(bytes),
        (_, "readfds" | "writefds" | "exceptfds", _) => Some(fd_set(bytes)),
        (_, "oldset" | "set" | "mask" | "sigmask", 8) if call != "sched_getaffinity" => {
            Some(signal_set(u64_at(bytes, 0)?))
        }
        ("sched_getaffinity", "mask", _) => Some(cpu_set(bytes)),
        ("rt_sigaction", "oldact" | "act", 32) => sigaction(bytes),
        ("rt_sigtimedwait" | "waitid", "info" | "infop", 128) => super::siginfo::describe(bytes),
        (_, "wstatus", 4) => Some(format!("[{}]", crate::human::end(i32_at(bytes, 0)?))),
        ("uname", "buf", 390) => uname(bytes),
        ("getdents" | "getdents64", "dirp", _) => Some(entries(call, bytes)),
        ("ioctl", _, 8) => None,
        (_, _, 4) => Some(format!("[{}]", i32_at(bytes, 0)?)),
        (_, _, 8) => Some(format!("[{:#x}]", u64_at(bytes, 0)?)),
        _ => None,
    }
}

fn flags(list: List, value: u64) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write_flags(&mut text, list, value);
    text
}

/// The elements of an array, as many as there are whole ones.
fn array(bytes: &[u8], size: usize, one: fn(&[u8]) -> Option<String>) -> Option<String> {
    let count = bytes.len() / size;
    let mut shown: Vec<String> = Vec::new();
    for element in bytes.chunks_exact(size).take(MAX_SHOWN) {
        shown.push(one(element)?);
    }
    if count > MAX_SHOWN {
        shown.push("...".into());
    }
    Some(format!("[{}]", shown.join(", ")))
}

fn file_mode(mode: u32) -> String {
    let kind = u64::from(mode) & 0o170000;
    let rest = mode & 0o7777;
    match flag_name(FILE_TYPES, kind) {
        Some(name) => format!("{name}|{rest:#05o}").replace("0o", "0"),
        None => format!("{mode:#o}").replace("0o", "0"),
    }
}

fn device(number: u64) -> String {
    let major = number >> 8 & 0xfff | number >> 32 & 0xffff_f000;
    let minor = number & 0xff | number >> 12 & 0xffff_ff00;
    format!("makedev({major:#x}, {minor:#x})")
}

fn stat(b: &[u8]) -> Option<String> {
    let mode = u32_at(b, 24)?;
    // Devices have a number instead of a size.
    let last = match u64::from(mode) & 0o170000 {
        0o020000 | 0o060000 => format!("st_rdev={}", device(u64_at(b, 40)?)),
        _ => format!("st_size={}", i64_at(b, 48)?),
    };
    Some(format!("{{st_mode={}, {last}, ...}}", file_mode(mode)))
}

fn statx(b: &[u8]) -> Option<String> {
    let mode = u32::from(u16_at(b, 28)?);
    Some(format!(
        "{{stx_mode={}, stx_size={}, ...}}",
        file_mode(mode),
        u64_at(b, 40)?
    ))
}

fn timespec(b: &[u8]) -> Option<String> {
    Some(format!(
        "{{tv_sec={}, tv_nsec={}}}",
        i64_at(b, 0)?,
        i64_at(b, 8)?
    ))
}

fn timeval(b: &[u8]) -> Option<String> {
    Some(format!(
        "{{tv_sec={}, tv_usec={}}}",
        i64_at(b, 0)?,
        i64_at(b, 8)?
    ))
}

fn interval(b: &[u8], moment: fn(&[u8]) -> Option<String>) -> Option<String> {
    let (every, left) = (moment(b.get(..16)?)?, moment(b.get(16..32)?)?);
    Some(format!("{{it_interval={every}, it_value={left}}}"))
}

fn rlimit(b: &[u8]) -> Option<String> {
    let limit = |at| match u64_at(b, at)? {
        u64::MAX => Some("RLIM_INFINITY".to_string()),
        n => Some(n.to_string()),
    };
    Some(format!(
        "{{rlim_cur={}, rlim_max={}}}",
        limit(0)?,
        limit(8)?
    ))
}

fn pollfd(b: &[u8]) -> Option<String> {
    let (events, happened) = (u16_at(b, 4)?, u16_at(b, 6)?);
    let happened = match happened {
        0 => String::new(),
        r => format!(", revents={}", flags(POLL, r.into())),
    };
    Some(format!(
        "{{fd={}, events={}{happened}}}",
        i32_at(b, 0)?,
        flags(POLL, events.into())
    ))
}

fn epoll_event(b: &[u8]) -> Option<String> {
    let events = flags(EPOLL, u32_at(b, 0)?.into());
    Some(format!("{{{events}, {:#x}}}", u64_at(b, 4)?))
}

fn sockaddr(b: &[u8]) -> Option<String> {
    let family = u16_at(b, 0)?;
    let port = || Some(u16::from_be_bytes(b.get(2..4)?.try_into().ok()?));
    match family {
        1 => {
            let path = &b[2..];
            let text = match path {
                [] => "unnamed".to_string(),
                [0, name @ ..] => format!("@{}", quoted(name, 108, name.len() as u64)),
                _ => {
                    let end = path.iter().position(|c| *c == 0).unwrap_or(path.len());
                    quoted(&path[..end], 108, end as u64)
                }
            };
            Some(format!("{{AF_UNIX, {text}}}"))
        }
        2 => {
            let ip: [u8; 4] = b.get(4..8)?.try_into().ok()?;
            Some(format!("{{AF_INET, {}:{}}}", Ipv4Addr::from(ip), port()?))
        }
        10 => {
            let ip: [u8; 16] = b.get(8..24)?.try_into().ok()?;
            Some(format!(
                "{{AF_INET6, [{}]:{}}}",
                Ipv6Addr::from(ip),
                port()?
            ))
        }
        other => {
            let name = flag_name(AF, other.into())?;
            Some(format!("{{{name}, {} bytes}}", b.len()))
        }
    }
}

/// Numbers of the bits that are set, most significant part last.
fn bits(bytes: &[u8]) -> Vec<usize> {
    let all = (0..bytes.len() * 8).filter(|i| bytes[i / 8] >> (i % 8) & 1 == 1);
    all.collect()
}

fn listed(numbers: &[usize]) -> String {
    let shown = numbers.iter().take(MAX_SHOWN).map(usize::to_string);
    let mut words: Vec<String> = shown.collect();
    if numbers.len() > MAX_SHOWN {
        words.push("...".into());
    }
    format!("[{}]", words.join(" "))
}

fn fd_set(bytes: &[u8]) -> String {
    listed(&bits(bytes))
}

fn cpu_set(bytes: &[u8]) -> String {
    listed(&bits(bytes))
}

/// A set of signals: `[SIGINT SIGTERM]`; when most are in it, those that are not: `~[SIGKILL]`.
pub fn signal_set(set: u64) -> String {
    let (sign, set) = if set.count_ones() > 32 {
        ("~", !set)
    } else {
        ("", set)
    };
    let names = (1..=64)
        .filter(|n| set >> (n - 1) & 1 == 1)
        .map(|n| signal_name(n).unwrap_or("?"));
    format!("{sign}[{}]", names.collect::<Vec<_>>().join(" "))
}

fn sigaction(b: &[u8]) -> Option<String> {
    let handler = match u64_at(b, 0)? {
        0 => "SIG_DFL".to_string(),
        1 => "SIG_IGN".to_string(),
        at => format!("{at:#x}"),
    };
    let how = flags(reprise_abi::syscalls::flags::SA, u64_at(b, 8)?);
    Some(format!(
        "{{sa_handler={handler}, sa_mask={}, sa_flags={how}}}",
        signal_set(u64_at(b, 24)?)
    ))
}

fn uname(b: &[u8]) -> Option<String> {
    let field = |i: usize| {
        let f = b.get(i * 65..(i + 1) * 65)?;
        let end = f.iter().position(|c| *c == 0).unwrap_or(f.len());
        Some(quoted(&f[..end], 65, end as u64))
    };
    Some(format!(
        "{{sysname={}, nodename={}, release={}, ...}}",
        field(0)?,
        field(1)?,
        field(2)?
    ))
}

/// Directory entries are counted; each says how long it is.
fn entries(call: &str, b: &[u8]) -> String {
    // d_reclen lies behind d_ino and d_off in both forms.
    let (mut at, mut count) = (0, 0);
    while let Some(len) = u16_at(b, at + 16).filter(|len| *len > 0) {
        at += usize::from(len);
        count += 1;
    }
    debug_assert!(call.starts_with("getdents"));
    format!("[{count} entries]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn times_and_limits() {
        let t = bytes(&[5, 7]);
        assert_eq!(
            describe("clock_gettime", "tp", &t).unwrap(),
            "{tv_sec=5, tv_nsec=7}"
        );
        assert_eq!(
            describe("gettimeofday", "tv", &t).unwrap(),
            "{tv_sec=5, tv_usec=7}"
        );
        assert_eq!(
            describe("prlimit64", "old_limit", &bytes(&[8, u64::MAX])).unwrap(),
            "{rlim_cur=8, rlim_max=RLIM_INFINITY}"
        );
        assert!(describe("setitimer", "old_value", &bytes(&[0, 1, 2, 3]))
            .unwrap()
            .ends_with("it_value={tv_sec=2, tv_usec=3}}"));
    }

    #[test]
    fn files() {
        let mut st = vec![0; 144];
        st[24..28].copy_from_slice(&0o100644u32.to_le_bytes());
        st[48..56].copy_from_slice(&1234u64.to_le_bytes());
        assert_eq!(
            describe("fstat", "statbuf", &st).unwrap(),
            "{st_mode=S_IFREG|0644, st_size=1234, ...}"
        );
        st[24..28].copy_from_slice(&0o020666u32.to_le_bytes());
        st[40..48].copy_from_slice(&0x103u64.to_le_bytes());
        assert_eq!(
            describe("fstat", "statbuf", &st).unwrap(),
            "{st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}"
        );
    }

    #[test]
    fn descriptors_and_events() {
        assert_eq!(
            describe("pipe2", "pipefd", &bytes(&[4 << 32 | 3])).unwrap(),
            "[3, 4]"
        );
        assert_eq!(
            describe("poll", "fds", &bytes(&[1 << 48 | 5 << 32 | 9])).unwrap(),
            "[{fd=9, events=POLLIN|POLLOUT, revents=POLLIN}]"
        );
        let mut e = 1u32.to_le_bytes().to_vec();
        e.extend_from_slice(&6u64.to_le_bytes());
        assert_eq!(
            describe("epoll_wait", "events", &e).unwrap(),
            "[{EPOLLIN, 0x6}]"
        );
        assert_eq!(
            describe("select", "readfds", &bytes(&[0b1001])).unwrap(),
            "[0 3]"
        );
    }

    #[test]
    fn addresses_of_sockets() {
        let inet = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            describe("connect", "addr", &inet).unwrap(),
            "{AF_INET, 127.0.0.1:80}"
        );
        assert_eq!(
            describe("bind", "addr", b"\x01\x00/run/x\0\0").unwrap(),
            "{AF_UNIX, \"/run/x\"}"
        );
        assert_eq!(
            describe("bind", "addr", b"\x01\x00\0x").unwrap(),
            "{AF_UNIX, @\"x\"}"
        );
        assert_eq!(describe("accept", "addr", &[2]), None);
    }

    #[test]
    fn sets_of_signals() {
        assert_eq!(signal_set(0), "[]");
        assert_eq!(signal_set(1 << 1 | 1 << 14), "[SIGINT SIGTERM]");
        assert_eq!(signal_set(!(1 << 8)), "~[SIGKILL]");
    }

    #[test]
    fn no_length_makes_it_fail() {
        for call in reprise_abi::syscalls::TABLE.iter().flatten() {
            for arg in call.args {
                for len in 0..160 {
                    let _ = describe(call.name, arg.name, &vec![0xff; len]);
                    let _ = describe(call.name, arg.name, &vec![0; len]);
                }
            }
        }
    }
}
