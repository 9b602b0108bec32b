//! One system call as strace would print it. Names, flags and memory come from the one table of `reprise-abi`; the contents of
//! memory from the event's sections.

use super::structures;
use super::text::quoted;
use reprise_abi::effect::Effect;
use reprise_abi::event::{Section, Tag, FLAG_RESTARTED};
use reprise_abi::futex::{self, Fourth};
use reprise_abi::names::{errno_name, signal_name};
use reprise_abi::sockopt;
use reprise_abi::spec::{Arg, Mem, Print, Ret, Size, Syscall, Width};
use reprise_abi::syscalls::{self, flag_name, flags, nr};

const AT_FDCWD: i64 = -100;
const F_SETFL: u64 = 4;
/// Most pieces of a vector that are shown.
const MAX_PIECES: usize = 8;
/// Where in a msghdr the kernel leaves lengths and flags: they are sections of their own, of these sizes.
const MSGHDR_RESULTS: [(u64, usize); 2] = [(8, 4), (40, 12)];

/// A call, with as much as is known of it.
pub struct Call<'a> {
    nr: u32,
    spec: Option<&'static Syscall>,
    /// As the program passed them.
    args: [u64; 6],
    /// As the kernel understands them.
    canonical: [u64; 6],
    count: usize,
    sections: Vec<Section<'a>>,
    result: i64,
    /// Most bytes of a buffer that are shown.
    limit: usize,
}

impl<'a> Call<'a> {
    /// A call with these arguments, of which `count` were recorded.
    pub fn new(nr: u32, args: [u64; 6], count: usize, limit: usize) -> Call<'a> {
        let spec = syscalls::lookup(u64::from(nr));
        Call {
            nr,
            spec,
            args,
            canonical: spec.map_or(args, |s| s.canonical(&args)),
            count: count.min(spec.map_or(6, |s| s.args.len())),
            sections: Vec::new(),
            result: 0,
            limit,
        }
    }

    /// With what came of it.
    pub fn with_outcome(mut self, result: i64, sections: Vec<Section<'a>>) -> Call<'a> {
        self.result = result;
        self.sections = sections;
        self
    }

    /// Its name.
    pub fn name(&self) -> String {
        name(self.nr)
    }

    /// Name, value and text of each argument.
    pub fn arguments(&self) -> Vec<(&'static str, u64, String)> {
        let shown = (0..self.count).filter(|&i| !self.is_unused(i));
        let all = shown.map(|i| match self.arg(i) {
            Some(arg) => (arg.name, self.canonical[i], self.argument(i, arg)),
            None => ("", self.args[i], format!("{:#x}", self.args[i])),
        });
        all.collect()
    }

    /// The arguments before the first whose memory is only known when the call is over.
    pub fn known_on_entry(&self) -> usize {
        let pending = |&i: &usize| {
            let mem = self.arg(i).map(|a| syscalls::mem(a, &self.canonical));
            self.canonical[i] != 0 && mem.is_some_and(|m| m != Mem::None)
        };
        let used = (0..self.count).filter(|&i| !self.is_unused(i));
        used.take_while(|i| !pending(i)).count()
    }

    /// What it returned, with everything the event says besides.
    pub fn outcome(&self, flags: u32) -> String {
        let mut text = match self.result {
            _ if flags & FLAG_RESTARTED != 0 => {
                "? ERESTARTSYS (made again after the handler)".into()
            }
            _ if matches!(
                syscalls::effect(self.nr.into()),
                Effect::EndsProcess | Effect::EndsThread
            ) =>
            {
                "?".into()
            }
            r => self.returned(r),
        };
        for section in self.sections.iter().filter(|s| s.tag == Tag::File) {
            let hash = super::text::hex(&section.bytes[..section.bytes.len().min(8)]);
            text.push_str(&format!(" <file {hash}, {} bytes>", section.address));
        }
        let mapped = self.sections.iter().filter(|s| s.tag == Tag::Mapped);
        for r in mapped.filter_map(|s| reprise_abi::mapped::parse(s.bytes)) {
            let (number, from, end) = (r.file(), r.offset, r.offset + r.len);
            text.push_str(&format!(" <input {number}, {from} to {end}>"));
        }
        if let Some(section) = self.sections.iter().find(|s| s.tag == Tag::Offset) {
            text.push_str(&format!(" <to a mapped file, at {}>", section.address));
        }
        if let Some(section) = self.sections.iter().find(|s| s.tag == Tag::Partly) {
            text.push_str(&format!(" <done in part: 0x{:x}>", section.address));
        }
        text
    }

    fn arg(&self, i: usize) -> Option<&'static Arg> {
        self.spec?.args.get(i)
    }

    /// Arguments that the call doesn't look at, given the others.
    fn is_unused(&self, i: usize) -> bool {
        syscalls::used(self.nr.into(), &self.canonical) & 1 << i == 0
    }

    fn argument(&self, i: usize, arg: &Arg) -> String {
        if let Some(text) = self.by_other_arguments(i) {
            return text;
        }
        let mem = syscalls::mem(arg, &self.canonical);
        if mem != Mem::None && self.args[i] != 0 {
            if let Some(text) = self.memory(i, arg, mem) {
                return text;
            }
            return pointer(self.args[i]);
        }
        let value = self.canonical[i];
        printed(arg, value)
    }

    /// Names that depend on another argument.
    fn by_other_arguments(&self, i: usize) -> Option<String> {
        let a = &self.canonical;
        match (u64::from(self.nr), i) {
            (nr::SETSOCKOPT | nr::GETSOCKOPT, 2) => {
                sockopt::option_name(a[1], a[2]).map(str::to_string)
            }
            (nr::FUTEX, 3) if futex::lookup(a[1])?.fourth == Fourth::Count => {
                Some((a[3] as u32).to_string())
            }
            (nr::FCNTL, 2) if a[1] == F_SETFL => Some(bits(flags::OPEN, a[2])),
            _ => {
                let list = self.spec?.args.iter().find_map(|other| match other.mem {
                    Mem::Command(by, list) if usize::from(by) == i => Some(list),
                    _ => None,
                })?;
                let sub = list.iter().find(|sub| sub.nr == u64::from(a[i] as u32))?;
                Some(sub.name.to_string())
            }
        }
    }

    /// What was in the memory behind argument `i`, as far as the event has it.
    fn memory(&self, i: usize, arg: &Arg, mem: Mem) -> Option<String> {
        let found = |tag| {
            let at = self.args[i];
            self.sections
                .iter()
                .find(|s| s.tag == tag && s.address == at)
        };
        match mem {
            Mem::Path => {
                let path = found(Tag::Path)?.bytes;
                Some(quoted(path, usize::MAX, path.len() as u64))
            }
            Mem::In(size) => {
                let preview = found(Tag::Input)?.bytes;
                let total = size.bytes(&self.canonical, 0, |_| 0);
                Some(self.content(arg, preview, total.max(preview.len() as u64), true))
            }
            Mem::IovecIn(_) | Mem::MsghdrIn | Mem::MmsghdrIn(_) => {
                let preview = found(Tag::Input)?.bytes;
                Some(quoted(preview, self.limit, preview.len() as u64))
            }
            Mem::IovecOut(_) | Mem::MsghdrOut | Mem::MmsghdrOut(_) => self.pieces(self.args[i]),
            Mem::Out { used, .. } | Mem::InOut { used, .. } => {
                let is_text = used == Size::Result || used == Size::ResultPlus(8);
                let bytes = found(Tag::Output)?.bytes;
                Some(self.content(arg, bytes, bytes.len() as u64, is_text))
            }
            _ => {
                let bytes = found(Tag::Output)?.bytes;
                Some(self.content(arg, bytes, bytes.len() as u64, false))
            }
        }
    }

    /// A structure by its fields, a buffer as a string, anything else by its size.
    fn content(&self, arg: &Arg, bytes: &[u8], total: u64, is_text: bool) -> String {
        let call = self.spec.map_or("", |s| s.name);
        let text = || quoted(bytes, self.limit, total);
        let named = match is_text && !matches!(arg.name, "dirp" | "addr" | "dest_addr" | "mask") {
            true => None,
            false => structures::describe(call, arg.name, bytes),
        };
        match named {
            Some(structure) => structure,
            None if is_text => text(),
            None => format!("{{{total} bytes}}"),
        }
    }

    /// What was scattered over buffers that no argument names.
    fn pieces(&self, at: u64) -> Option<String> {
        let is_piece = |s: &&Section| {
            let by_argument = self.args.contains(&s.address);
            let offset = s.address.wrapping_sub(at);
            let of_header = MSGHDR_RESULTS.contains(&(offset, s.bytes.len()));
            s.tag == Tag::Output && !by_argument && !of_header
        };
        let pieces: Vec<_> = self.sections.iter().filter(is_piece).collect();
        if pieces.is_empty() {
            return None;
        }
        let shown = pieces.iter().take(MAX_PIECES);
        let mut texts: Vec<String> = shown
            .map(|s| quoted(s.bytes, self.limit, s.bytes.len() as u64))
            .collect();
        if pieces.len() > MAX_PIECES {
            texts.push(format!("... {} more", pieces.len() - MAX_PIECES));
        }
        Some(format!("[{}]", texts.join(", ")))
    }

    fn returned(&self, result: i64) -> String {
        if (-4095..0).contains(&result) {
            let errno = -result as i32;
            return match errno_name(errno) {
                Some(name) => format!("-1 {name} ({})", meaning(errno)),
                None => format!("-1 error {errno}"),
            };
        }
        let ret = self
            .spec
            .map_or(Ret::Int, |s| syscalls::resolve(s, &self.canonical).ret);
        match ret {
            Ret::Ptr => format!("{result:#x}"),
            Ret::Int | Ret::Fd | Ret::Pid => result.to_string(),
        }
    }
}

/// The name of the call with this number.
pub fn name(nr: u32) -> String {
    match syscalls::lookup(u64::from(nr)) {
        Some(spec) => spec.name.to_string(),
        None => format!("syscall_{nr}"),
    }
}

/// What strerror(3) says.
fn meaning(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.split_once(" (os error") {
        Some((meaning, _)) => meaning.to_string(),
        None => text,
    }
}

fn pointer(value: u64) -> String {
    match value {
        0 => "NULL".into(),
        at => format!("{at:#x}"),
    }
}

fn bits(list: flags::List, value: u64) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = flags::write_flags(&mut text, list, value);
    text
}

/// An argument that is no memory, in the way that the table says.
fn printed(arg: &Arg, value: u64) -> String {
    match arg.print {
        Print::Int | Print::Pid | Print::PidBy { .. } => (value as i64).to_string(),
        Print::Uint => value.to_string(),
        Print::Hex => format!("{value:#x}"),
        Print::Ptr => pointer(value),
        Print::Fd if value as i64 == AT_FDCWD => "AT_FDCWD".into(),
        Print::Fd if arg.width == Width::Signed => (value as i32).to_string(),
        Print::Fd => (value as i64).to_string(),
        Print::Mode => format!("0{value:o}"),
        Print::Signal => match signal_name(value as u32) {
            Some(name) => name.to_string(),
            None => (value as i64).to_string(),
        },
        Print::Flags(list) => bits(list, value),
        Print::Enum(list) => match flag_name(list, value) {
            Some(name) => name.to_string(),
            None => format!("{value:#x}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(tag: Tag, address: u64, bytes: &[u8]) -> Section<'_> {
        Section {
            address,
            tag,
            bytes,
        }
    }

    fn show(nr: u64, args: &[u64], result: i64, sections: Vec<Section>) -> String {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let call = Call::new(nr as u32, all, args.len(), 32).with_outcome(result, sections);
        let texts: Vec<String> = call.arguments().into_iter().map(|a| a.2).collect();
        format!(
            "{}({}) = {}",
            call.name(),
            texts.join(", "),
            call.outcome(0)
        )
    }

    const CWD: u64 = -100i64 as u64;

    #[test]
    fn paths_flags_and_modes() {
        let path = || vec![section(Tag::Path, 0x1000, b"/etc/hosts")];
        assert_eq!(
            show(nr::OPENAT, &[CWD, 0x1000, 0x80000, 0], 3, path()),
            "openat(AT_FDCWD, \"/etc/hosts\", O_RDONLY|O_CLOEXEC) = 3"
        );
        assert_eq!(
            show(nr::OPENAT, &[CWD, 0x1000, 0x41, 0o644], -2, path()),
            "openat(AT_FDCWD, \"/etc/hosts\", O_WRONLY|O_CREAT, 0644) = -1 ENOENT (No such file or directory)"
        );
        // What the program left in the upper half of a 32-bit argument does not count.
        assert!(show(nr::OPENAT, &[0xffff_ff9c, 0x1000, 0, 0], 3, path()).contains("AT_FDCWD"));
    }

    #[test]
    fn buffers_in_and_out() {
        assert_eq!(
            show(
                nr::READ,
                &[5, 0x2000, 4096],
                3,
                vec![section(Tag::Output, 0x2000, b"abc")]
            ),
            "read(5, \"abc\", 4096) = 3"
        );
        assert_eq!(
            show(
                nr::WRITE,
                &[1, 0x2000, 100],
                100,
                vec![section(Tag::Input, 0x2000, b"hello")]
            ),
            "write(1, \"hello\"..., 100) = 100"
        );
        assert_eq!(
            show(nr::READ, &[5, 0x2000, 4096], -11, vec![]),
            "read(5, 0x2000, 4096) = -1 EAGAIN (Resource temporarily unavailable)"
        );
        assert_eq!(
            show(nr::READ, &[5, 0, 0], 0, vec![]),
            "read(5, NULL, 0) = 0"
        );
        assert_eq!(
            show(
                nr::READV,
                &[5, 0x2000, 2],
                5,
                vec![
                    section(Tag::Output, 0x3000, b"abc"),
                    section(Tag::Output, 0x4000, b"de")
                ]
            ),
            "readv(5, [\"abc\", \"de\"], 2) = 5"
        );
        assert_eq!(
            show(
                nr::RECVMSG,
                &[5, 0x2000, 0x40],
                3,
                vec![
                    section(Tag::Output, 0x3000, b"abc"),
                    section(Tag::Output, 0x2008, &[0; 4]),
                    section(Tag::Output, 0x2028, &[0; 12])
                ]
            ),
            "recvmsg(5, [\"abc\"], MSG_DONTWAIT) = 3"
        );
    }

    #[test]
    fn structures_and_numbers() {
        let one_second = [1u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
        assert_eq!(
            show(
                nr::CLOCK_GETTIME,
                &[1, 0x10],
                0,
                vec![section(Tag::Output, 0x10, &one_second)]
            ),
            "clock_gettime(CLOCK_MONOTONIC, {tv_sec=1, tv_nsec=2}) = 0"
        );
        assert_eq!(
            show(nr::MMAP, &[0, 4096, 3, 0x22, u32::MAX.into(), 0], 0x7f00_0000, vec![]),
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0x0) = 0x7f000000"
        );
        assert_eq!(
            show(nr::FUTEX, &[0x10, 129, 1, 0, 0, 0], 1, vec![]),
            "futex(0x10, FUTEX_PRIVATE_FLAG|FUTEX_WAKE, 1) = 1"
        );
        assert_eq!(
            show(nr::FUTEX, &[0x10, 128, 1, 0, 0, 0], -11, vec![]),
            "futex(0x10, FUTEX_PRIVATE_FLAG|FUTEX_WAIT, 1, NULL) = -1 EAGAIN (Resource temporarily unavailable)"
        );
        assert_eq!(
            show(nr::FUTEX, &[0x10, 3, 1, 9, 0x20, 0], 2, vec![]),
            "futex(0x10, FUTEX_REQUEUE, 1, 9, 0x20) = 2"
        );
        assert_eq!(
            show(nr::FCNTL, &[3, 4, 0x802], 0, vec![]),
            "fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0"
        );
        assert_eq!(
            show(nr::FCNTL, &[3, 1, 0x802], 1, vec![]),
            "fcntl(3, F_GETFD) = 1"
        );
        assert_eq!(
            show(nr::SETSOCKOPT, &[3, 6, 1, 0x10, 4], 0, vec![]),
            "setsockopt(3, SOL_TCP, TCP_NODELAY, 0x10, 4) = 0"
        );
        assert_eq!(
            show(nr::TGKILL, &[1, 2, 10], 0, vec![]),
            "tgkill(1, 2, SIGUSR1) = 0"
        );
        assert_eq!(
            show(nr::SHMCTL, &[1, 0, 0], 0, vec![]),
            "shmctl(1, IPC_RMID, 0x0) = 0"
        );
        assert_eq!(
            show(nr::MMAP, &[0, 10, 1, 2, 3, 0], 0x10000, vec![section(Tag::File, 10, &[0xab; 16])]),
            "mmap(NULL, 10, PROT_READ, MAP_PRIVATE, 3, 0x0) = 0x10000 <file abababababababab, 10 bytes>"
        );
    }

    #[test]
    fn calls_that_nobody_knows() {
        assert_eq!(
            show(999, &[1, 2], -38, vec![]),
            "syscall_999(0x1, 0x2) = -1 ENOSYS (Function not implemented)"
        );
        assert_eq!(show(nr::EXIT_GROUP, &[3], 0, vec![]), "exit_group(3) = ?");
        assert_eq!(
            show(nr::CLOSE, &[3], -4000, vec![]),
            "close(3) = -1 error 4000"
        );
    }

    #[test]
    fn on_entry_only_what_is_known_then() {
        let known = |nr: u64, args: &[u64]| {
            let mut all = [0; 6];
            all[..args.len()].copy_from_slice(args);
            Call::new(nr as u32, all, args.len(), 32).known_on_entry()
        };
        assert_eq!(known(nr::READ, &[3, 0x1000, 9]), 1);
        assert_eq!(known(nr::OPENAT, &[CWD, 0x1000, 0, 0]), 1);
        assert_eq!(known(nr::FUTEX, &[0x10, 128, 2, 0, 0, 0]), 4);
        assert_eq!(known(nr::PAUSE, &[]), 0);
    }

    #[test]
    fn nothing_makes_it_fail() {
        let words = [0, 1, 0x1000, u64::MAX, 1 << 63, 0x7fff_ffff];
        let bytes = vec![0xee; 200];
        for number in 0..600 {
            for &word in &words {
                let sections = [
                    Tag::Output,
                    Tag::Input,
                    Tag::Path,
                    Tag::File,
                    Tag::Siginfo,
                    Tag::State,
                ]
                .map(|tag| section(tag, word, &bytes));
                for result in [0, -1, -4095, i64::MIN, i64::MAX] {
                    let _ = show(number, &[word; 6], result, sections.to_vec());
                }
            }
        }
    }
}
