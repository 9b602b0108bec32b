//! The table of all x86-64 system calls, as of Linux 6.18.
//!
//! This is the one place that knows what a call reads, writes, waits for and how it is replayed. Record, replay, the printer
//! and the coverage page (docs/SYSCALLS.md) are derived from it. A line reads like the synopsis of a man page:
//!
//! ```text
//! 0 READ read(fd: fd, buf: out(count) wrote(result), count: size) -> int: emulate, waits(fd), restarts;
//! ```
//!
//! **Arguments** are `name: kind`. Kinds that are no memory: `int` and `uint` (of 32 bits), `long` and `size` (of 64), `hex`,
//! `fd`, `mode`, `signal`, `addr`, `flags(LIST)` and `one_of(LIST)` with a list of [`flags`]. Memory: `path`, `strings`, `in(SIZE)`, `out(CAPACITY)`,
//! `out(CAPACITY) wrote(SIZE)`, `inout(SIZE)`, either with `always` when it is also written on failure; `iov_in(n)`,
//! `iov_out(n)`, `msg_in`, `msg_out`, `mmsg_in(n)`, `mmsg_out(n)`; `ioctl(cmd)`, `fcntl(cmd)`, `prctl`,
//! `command(cmd, LIST)`; `unknown`.
//!
//! **Sizes** are written with the names of other arguments: `144`, `count`, `count * 8`, `count + 8`, `a * b * 4`,
//! `result`, `result * 12`, `result + 8`, `[optlen]` (the 32-bit number found there), `[handle] + 8`, `bits nfds`,
//! `pages length`, `[hdrp] == 7 ? 12 : 24` (by the 32-bit number found there). A size may be more than what the kernel really wrote (a struct filled in part, an argument that some flag
//! switches off), never less: so memory that stands in for the program's must start as a copy of it.
//!
//! **Ids** of processes and threads are `pid`; `pid(which 1 2)` is one where the argument `which` is a number from 1 to 2.
//!
//! **Classes**: `emulate`, `reexecute`, `special` or `refuse(ERRNO)`; then how it waits: `prompt` (never),
//! `waits(fd)` (when that descriptor is not ready), `waits` (by its nature), nothing (rarely: disk, look-up of names);
//! then what a signal does: `restarts` (with SA_RESTART), `eintr` (never restarted), nothing (never interrupted).
//!
//! **Facts** that follow, each if it is so: `timeout(UNIT argument)`, how long the call waits at most ([`Timeout`]); `nowait(argument FLAG)`, it doesn't with this flag; `mask(argument, size)`, the signal
//! mask that it waits under ([`Mask`]); `local`, whoever makes it changes nothing outside of the process and needs no descriptor; `asks`, it changes nothing, for nobody; `hides`, the process may not look into itself any more, nor into copies of it; `vdso`, libc finds it in
//! the vDSO; `noted(NOTE)`, the user is told when it is refused; `does(...)`, what it does to descriptors, files, memory, processes, signals and
//! clocks, in the words of [`crate::effect`].

use crate::effect::{Effect, Mask, Opened, Timeout};
use crate::spec::{Arg, Blocking, Mem, Replay, Restart, Ret, Speculation, SubCall, Syscall};

pub mod flags;

/// The position of the argument called `name`; a name that does not exist stops the compiler.
pub(crate) const fn index(names: &[&str], name: &str) -> u8 {
    let mut i = 0;
    while i < names.len() {
        if same(names[i].as_bytes(), name.as_bytes()) {
            return i as u8;
        }
        i += 1;
    }
    panic!("the call has no argument of this name")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A size, see the module's description. `NAMES` is the list of the call's arguments, in scope where this is used.
macro_rules! size {
    (result) => {
        $crate::spec::Size::Result
    };
    (result * $n:literal) => {
        $crate::spec::Size::ResultTimes($n)
    };
    (result + $n:literal) => {
        $crate::spec::Size::ResultPlus($n)
    };
    (bits $a:ident) => {
        $crate::spec::Size::Bits($crate::syscalls::index(NAMES, stringify!($a)))
    };
    (pages $a:ident) => {
        $crate::spec::Size::Pages($crate::syscalls::index(NAMES, stringify!($a)))
    };
    ([$a:ident] == $v:literal ? $x:literal : $y:literal) => {
        $crate::spec::Size::Chosen {
            at: $crate::syscalls::index(NAMES, stringify!($a)),
            value: $v,
            then: $x,
            otherwise: $y,
        }
    };
    ([$a:ident]) => {
        $crate::spec::Size::Deref32($crate::syscalls::index(NAMES, stringify!($a)))
    };
    ([$a:ident] + $n:literal) => {
        $crate::spec::Size::Deref32Plus($crate::syscalls::index(NAMES, stringify!($a)), $n)
    };
    ($n:literal) => {
        $crate::spec::Size::Bytes($n)
    };
    ($a:ident) => {
        $crate::spec::Size::Arg($crate::syscalls::index(NAMES, stringify!($a)))
    };
    ($a:ident * $n:literal) => {
        $crate::spec::Size::ArgTimes($crate::syscalls::index(NAMES, stringify!($a)), $n)
    };
    ($a:ident + $n:literal) => {
        $crate::spec::Size::ArgPlus($crate::syscalls::index(NAMES, stringify!($a)), $n)
    };
    ($a:ident * $b:ident * $n:literal) => {
        $crate::spec::Size::Product(
            $crate::syscalls::index(NAMES, stringify!($a)),
            $crate::syscalls::index(NAMES, stringify!($b)),
            $n,
        )
    };
}

/// The memory behind an argument, see the module's description.
macro_rules! pointee {
    (path) => { $crate::spec::Mem::Path };
    (strings) => { $crate::spec::Mem::Strings };
    (in($($s:tt)+)) => { $crate::spec::Mem::In(size!($($s)+)) };
    (out($($s:tt)+)) => { $crate::spec::Mem::Out { cap: size!($($s)+), used: size!($($s)+) } };
    (out($($s:tt)+) wrote($($u:tt)+)) => { $crate::spec::Mem::Out { cap: size!($($s)+), used: size!($($u)+) } };
    (out($($s:tt)+) always) => { $crate::spec::Mem::OutAlways(size!($($s)+)) };
    (inout($($s:tt)+)) => { $crate::spec::Mem::InOut { cap: size!($($s)+), used: size!($($s)+) } };
    (inout($($s:tt)+) always) => { $crate::spec::Mem::InOutAlways(size!($($s)+)) };
    (iov_in($a:ident)) => { $crate::spec::Mem::IovecIn($crate::syscalls::index(NAMES, stringify!($a))) };
    (iov_out($a:ident)) => { $crate::spec::Mem::IovecOut($crate::syscalls::index(NAMES, stringify!($a))) };
    (msg_in) => { $crate::spec::Mem::MsghdrIn };
    (msg_out) => { $crate::spec::Mem::MsghdrOut };
    (mmsg_in($a:ident)) => { $crate::spec::Mem::MmsghdrIn($crate::syscalls::index(NAMES, stringify!($a))) };
    (mmsg_out($a:ident)) => { $crate::spec::Mem::MmsghdrOut($crate::syscalls::index(NAMES, stringify!($a))) };
    (ioctl($a:ident)) => { $crate::spec::Mem::Ioctl($crate::syscalls::index(NAMES, stringify!($a))) };
    (fcntl($a:ident)) => { $crate::spec::Mem::Fcntl($crate::syscalls::index(NAMES, stringify!($a))) };
    (prctl) => { $crate::spec::Mem::Prctl };
    (command($a:ident, $list:ident)) => {
        $crate::spec::Mem::Command($crate::syscalls::index(NAMES, stringify!($a)), $list)
    };
    (unknown) => { $crate::spec::Mem::Unknown };
    ($($value:tt)+) => { $crate::spec::Mem::None };
}

/// How an argument is printed, see the module's description.
macro_rules! printed {
    (int) => {
        $crate::spec::Print::Int
    };
    (uint) => {
        $crate::spec::Print::Uint
    };
    (long) => {
        $crate::spec::Print::Int
    };
    (size) => {
        $crate::spec::Print::Uint
    };
    (hex) => {
        $crate::spec::Print::Hex
    };
    (fd) => {
        $crate::spec::Print::Fd
    };
    (pid) => {
        $crate::spec::Print::Pid
    };
    (pid($which:ident $from:literal $to:literal)) => {
        $crate::spec::Print::PidBy {
            which: $crate::syscalls::index(NAMES, stringify!($which)),
            from: $from,
            to: $to,
        }
    };
    (mode) => {
        $crate::spec::Print::Mode
    };
    (signal) => {
        $crate::spec::Print::Signal
    };
    (addr) => {
        $crate::spec::Print::Ptr
    };
    (flags($list:ident)) => {
        $crate::spec::Print::Flags($crate::syscalls::flags::$list)
    };
    (one_of($list:ident)) => {
        $crate::spec::Print::Enum($crate::syscalls::flags::$list)
    };
    // A mistyped kind must not pass for memory: `pointee!` would say that there is none.
    (path) => {
        $crate::spec::Print::Ptr
    };
    (strings) => {
        $crate::spec::Print::Ptr
    };
    (in $($x:tt)+) => {
        $crate::spec::Print::Ptr
    };
    (out $($x:tt)+) => {
        $crate::spec::Print::Ptr
    };
    (inout $($x:tt)+) => {
        $crate::spec::Print::Ptr
    };
    (iov_in $x:tt) => {
        $crate::spec::Print::Ptr
    };
    (iov_out $x:tt) => {
        $crate::spec::Print::Ptr
    };
    (msg_in) => {
        $crate::spec::Print::Ptr
    };
    (msg_out) => {
        $crate::spec::Print::Ptr
    };
    (mmsg_in $x:tt) => {
        $crate::spec::Print::Ptr
    };
    (mmsg_out $x:tt) => {
        $crate::spec::Print::Ptr
    };
    (ioctl $x:tt) => {
        $crate::spec::Print::Hex
    };
    (fcntl $x:tt) => {
        $crate::spec::Print::Hex
    };
    (command $x:tt) => {
        $crate::spec::Print::Hex
    };
    (prctl) => {
        $crate::spec::Print::Hex
    };
    (unknown) => {
        $crate::spec::Print::Ptr
    };
}

/// Which bits of an argument the kernel looks at.
macro_rules! width {
    (int) => {
        $crate::spec::Width::Signed
    };
    (fd) => {
        $crate::spec::Width::Signed
    };
    (pid $($which:tt)?) => {
        $crate::spec::Width::Signed
    };
    (uint) => {
        $crate::spec::Width::Unsigned
    };
    (mode) => {
        $crate::spec::Width::Unsigned
    };
    (signal) => {
        $crate::spec::Width::Signed
    };
    (flags $list:tt) => {
        $crate::spec::Width::Unsigned
    };
    (one_of $list:tt) => {
        $crate::spec::Width::Unsigned
    };
    ($($other:tt)+) => {
        $crate::spec::Width::Full
    };
}

/// How a result is printed.
macro_rules! returns {
    (int) => {
        $crate::spec::Ret::Int
    };
    (ptr) => {
        $crate::spec::Ret::Ptr
    };
    (fd) => {
        $crate::spec::Ret::Fd
    };
    (pid) => {
        $crate::spec::Ret::Pid
    };
}

/// One word of a call's classes, see the module's description.
macro_rules! class {
    ($c:ident, emulate) => {
        $c.replay = $crate::spec::Replay::Emulate;
    };
    ($c:ident, reexecute) => {
        $c.replay = $crate::spec::Replay::Reexecute;
    };
    ($c:ident, special) => {
        $c.replay = $crate::spec::Replay::Special;
    };
    ($c:ident, refuse($e:ident)) => {
        $c.replay = $crate::spec::Replay::Refuse($crate::names::errno::$e);
        $c.blocking = $crate::spec::Blocking::Never;
    };
    ($c:ident, prompt) => {
        $c.blocking = $crate::spec::Blocking::Never;
    };
    ($c:ident, waits) => {
        $c.blocking = $crate::spec::Blocking::Always;
    };
    ($c:ident, waits($a:ident)) => {
        $c.blocking = $crate::spec::Blocking::Fd($crate::syscalls::index(NAMES, stringify!($a)));
    };
    ($c:ident, restarts) => {
        $c.restart = $crate::spec::Restart::Handler;
    };
    ($c:ident, eintr) => {
        $c.restart = $crate::spec::Restart::Never;
    };
    ($c:ident, timeout($($t:tt)+)) => {
        $c.timeout = $crate::effect::timeout!($($t)+);
    };
    ($c:ident, mask($at:ident $(, $size:ident)?)) => {
        $c.mask = Some($crate::effect::Mask {
            at: $crate::effect::argument!($at),
            size: $crate::effect::effect!(@maybe $($size)?),
        });
    };
    ($c:ident, nowait($at:ident $flag:literal)) => {
        $c.no_wait = Some($crate::effect::NoWait {
            at: $crate::effect::argument!($at),
            flag: $flag,
        });
    };
    ($c:ident, local) => {
        $c.local = true;
    };
    ($c:ident, asks) => {
        $c.asks = true;
    };
    ($c:ident, hides) => {
        $c.hides = true;
    };
    ($c:ident, vdso) => {
        $c.vdso = true;
    };
    ($c:ident, noted($note:ident)) => {
        $c.note = $crate::notes::$note;
    };
    ($c:ident, does($($e:tt)+)) => {
        $c.effect = $crate::effect::effect!($($e)+);
        $c.does = stringify!($($e)+);
    };
}

/// Calls, see the module's description.
macro_rules! calls {
    ($($nr:literal $constant:ident $name:ident(
        $($arg:ident : $($kind:ident $(($($what:tt)*))?)+),* $(,)?
    ) -> $ret:ident : $($word:ident $(($($of:tt)*))?),+ ;)*) => {
        /// Numbers of the calls of this family.
        pub mod nr {
            $(
                #[doc = concat!("Number of `", stringify!($name), "`.")]
                pub const $constant: u64 = $nr;
            )*
        }

        pub(super) const CALLS: &[$crate::spec::Syscall] = &[$({
            #[allow(dead_code)]
            const NAMES: &[&str] = &[$(stringify!($arg)),*];
            const ARGS: &[$crate::spec::Arg] = &[$($crate::spec::Arg {
                name: stringify!($arg),
                print: printed!($($kind $(($($what)*))?)+),
                mem: pointee!($($kind $(($($what)*))?)+),
                width: width!($($kind $(($($what)*))?)+),
            }),*];
            let mut call = $crate::spec::Syscall {
                nr: $nr,
                name: stringify!($name),
                args: ARGS,
                ret: returns!($ret),
                replay: $crate::spec::Replay::Emulate,
                blocking: $crate::spec::Blocking::Rarely,
                restart: $crate::spec::Restart::No,
                timeout: $crate::effect::Timeout::None,
                no_wait: None,
                mask: None,
                local: false,
                asks: false,
                hides: false,
                vdso: false,
                note: 0,
                effect: $crate::effect::Effect::Other,
                does: "",
            };
            $(class!(call, $word $(($($of)*))?);)+
            call
        }),*];
    };
}

/// Entries of a sub-table: `NUMBER NAME(memory) -> result: classes;`, in the words of [`calls`]. `$names` are the arguments
/// of the call to which the sub-table belongs. With `pub` before the list, each number also becomes a constant.
macro_rules! commands {
    ($(#[$doc:meta])* pub const $list:ident($($names:ident),*) { $($entries:tt)* }) => {
        commands!(@constants $($entries)*);
        commands!($(#[$doc])* const $list($($names),*) { $($entries)* });
    };
    (@constants $($nr:literal $name:ident($($kind:tt)+) -> $ret:ident : $($word:ident $(($($of:tt)*))?),+ ;)*) => {
        $(
            #[doc = concat!("Number of `", stringify!($name), "`.")]
            pub const $name: u64 = $nr;
        )*
    };
    ($(#[$doc:meta])* const $list:ident($($names:ident),*) {
        $($nr:literal $name:ident($($kind:tt)+) -> $ret:ident : $($word:ident $(($($of:tt)*))?),+ ;)*
    }) => {
        $(#[$doc])*
        pub const $list: &[$crate::spec::SubCall] = {
            #[allow(dead_code)]
            const NAMES: &[&str] = &[$(stringify!($names)),*];
            &[$({
                // Only for its check that the kind exists.
                let _ = printed!($($kind)+);
                let mut call = $crate::spec::SubCall {
                    nr: $nr,
                    name: stringify!($name),
                    mem: pointee!($($kind)+),
                    ret: returns!($ret),
                    replay: $crate::spec::Replay::Emulate,
                    blocking: $crate::spec::Blocking::Rarely,
                    restart: $crate::spec::Restart::No,
                    asks: false,
                    hides: false,
                };
                $(class!(call, $word $(($($of)*))?);)+
                call
            }),*]
        };
    };
}

pub(crate) use {class, commands, pointee, printed, returns, size};

pub mod descriptors;
pub mod files;
pub mod ipc;
pub mod memory;
pub mod network;
pub mod process;
pub mod signals;
pub mod system;
pub mod time;
mod used;

pub use used::{asks_alike, used};

/// The number of every call by its name in capitals: `nr::READ`.
pub mod nr {
    pub use super::descriptors::nr::*;
    pub use super::files::nr::*;
    pub use super::ipc::nr::*;
    pub use super::memory::nr::*;
    pub use super::network::nr::*;
    pub use super::process::nr::*;
    pub use super::signals::nr::*;
    pub use super::system::nr::*;
    pub use super::time::nr::*;
}

const FAMILIES: [&[Syscall]; 9] = [
    descriptors::CALLS,
    files::CALLS,
    ipc::CALLS,
    memory::CALLS,
    network::CALLS,
    process::CALLS,
    signals::CALLS,
    system::CALLS,
    time::CALLS,
];

/// One more than the highest number in [`TABLE`].
pub const LIMIT: usize = 471;

const fn build() -> [Option<&'static Syscall>; LIMIT] {
    let mut table = [None; LIMIT];
    let mut f = 0;
    while f < FAMILIES.len() {
        let mut i = 0;
        while i < FAMILIES[f].len() {
            let call = &FAMILIES[f][i];
            assert!(
                table[call.nr as usize].is_none(),
                "two calls have one number"
            );
            assert!(call.args.len() <= 6);
            table[call.nr as usize] = Some(call);
            i += 1;
        }
        f += 1;
    }
    table
}

/// All calls by their number.
pub static TABLE: [Option<&'static Syscall>; LIMIT] = build();

/// The call with this number.
#[inline]
pub fn lookup(nr: u64) -> Option<&'static Syscall> {
    *TABLE.get(nr as usize)?
}

/// What the call with this number does; of one that the table doesn't know, nothing that anybody follows.
#[inline]
pub fn effect(nr: u64) -> Effect {
    lookup(nr).map_or(Effect::Other, |call| call.effect)
}

/// Does the kernel keep something of the call with this number, or do others see it, so that going back doesn't undo it? Who goes back is in no queue of the kernel's.
pub fn lasts(nr: u64) -> bool {
    let effect = effect(nr);
    let is_own = matches!(
        effect,
        Effect::Futex
            | Effect::SetsMask
            | Effect::SetsStack
            | Effect::SetsExitWord
            | Effect::SetsRobustList
            | Effect::SegmentBase
            | Effect::Returns
            | Effect::Sleeps
            | Effect::Tells(_)
            | Effect::Yields
    );
    let is_local = |call: &Syscall| effect == Effect::Other && call.local;
    let shapes = effect.shapes_memory() || effect == Effect::Breaks;
    !is_own && !shapes && !lookup(nr).is_some_and(is_local)
}

/// What the call with this number may do before it is known whether its epoch is good.
pub fn speculation(nr: u64) -> Speculation {
    let only_asks = |call: &Syscall| call.asks;
    match effect(nr) {
        _ if !lasts(nr) => Speculation::Free,
        _ if lookup(nr).is_some_and(only_asks) => Speculation::Asks,
        // Which of their commands do: the runtime knows.
        Effect::Reads(..)
        | Effect::Receives(_)
        | Effect::OpensFile(_)
        | Effect::Closes(_)
        | Effect::Commands(_)
        | Effect::ReadsLink(_) => Speculation::Asks,
        Effect::Opens(Opened::Accepted(_) | Opened::Foreign) => Speculation::Commits,
        Effect::Opens(_) => Speculation::Asks,
        Effect::Writes(..) | Effect::Sends(_) => Speculation::Holds,
        _ if [nr::LSEEK, nr::GETDENTS, nr::GETDENTS64].contains(&nr) => Speculation::Asks,
        _ => Speculation::Commits,
    }
}

/// Does the call with these arguments change nothing, for nobody?
pub fn only_asks(nr: u64, args: &[u64; 6]) -> bool {
    match nr {
        // Without a new value.
        nr::RT_SIGACTION => args[1] == 0,
        nr::PRLIMIT64 => args[2] == 0,
        // What a thread is called changes nothing that it does.
        nr::PRCTL if args[0] as u32 as u64 == crate::prctl::PR_SET_NAME => true,
        _ => is(nr, args, |call| call.asks, |sub| sub.asks),
    }
}

/// May the process, after this call, not look into itself any more, nor into copies of it? It may have become another user, be dumpable no more (prctl(2)), or find no /proc.
pub fn may_hide_process(nr: u64, args: &[u64; 6]) -> bool {
    is(nr, args, |call| call.hides, |sub| sub.hides)
}

/// Is that so of the call by the table, or of its command by the call's sub-table?
fn is(
    nr: u64,
    args: &[u64; 6],
    of: fn(&Syscall) -> bool,
    of_command: fn(&SubCall) -> bool,
) -> bool {
    let is_command = |arg: &Arg| sub_call(arg.mem, args).flatten().is_some_and(of_command);
    lookup(nr).is_some_and(|call| of(call) || call.args.iter().any(is_command))
}

/// How long the call with this number waits at most, and where that is said.
pub fn timeout(nr: u64) -> Timeout {
    lookup(nr).map_or(Timeout::None, |call| call.timeout)
}

/// The signal mask under which the call with this number waits.
#[inline]
pub fn mask(nr: u64) -> Option<Mask> {
    lookup(nr)?.mask
}

/// The call with this name.
pub fn by_name(name: &str) -> Option<&'static Syscall> {
    TABLE
        .iter()
        .flatten()
        .copied()
        .find(|call| call.name == name)
}

/// Positions in `entries` by rising number, for [`find`].
pub(crate) const fn sorted<const N: usize>(entries: &[SubCall]) -> [u16; N] {
    assert!(entries.len() == N && N <= u16::MAX as usize);
    let mut order = [0; N];
    let mut i = 0;
    while i < N {
        let mut at = i;
        while at > 0 && entries[order[at - 1] as usize].nr > entries[i].nr {
            order[at] = order[at - 1];
            at -= 1;
        }
        assert!(
            at == 0 || entries[order[at - 1] as usize].nr != entries[i].nr,
            "two entries have one number"
        );
        order[at] = i as u16;
        i += 1;
    }
    order
}

/// The entry with this number, given the positions by rising number.
pub(crate) fn find(
    entries: &'static [SubCall],
    order: &[u16],
    nr: u64,
) -> Option<&'static SubCall> {
    let at = order
        .binary_search_by_key(&nr, |&i| entries[i as usize].nr)
        .ok()?;
    entries.get(order[at] as usize)
}

/// The numbers and names of a sub-table, for printing.
pub(crate) const fn named<const N: usize>(entries: &[SubCall]) -> [(u64, &'static str); N] {
    let mut list = [(0, ""); N];
    let mut i = 0;
    while i < N {
        list[i] = (entries[i].nr, entries[i].name);
        i += 1;
    }
    list
}

/// The name of exactly this value in a list of [`flags`].
pub fn flag_name(list: &[(u64, &'static str)], value: u64) -> Option<&'static str> {
    list.iter()
        .find(|&&(v, name)| v == value && !name.is_empty())
        .map(|&(_, name)| name)
}

/// What is known of one call with its arguments, once its sub-table has been asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The entry of the sub-table, where the call has one and it knows the command.
    pub sub: Option<&'static SubCall>,
    /// How replay treats it.
    pub replay: Replay,
    /// Whether it may wait.
    pub blocking: Blocking,
    /// What a signal does to it.
    pub restart: Restart,
    /// How its result is printed.
    pub ret: Ret,
    /// It writes memory that the table does not know: the write-tracking fallback is needed.
    pub unknown: bool,
}

/// The sub-table's entry for this argument, or that it is not there.
fn sub_call(mem: Mem, args: &[u64; 6]) -> Option<Option<&'static SubCall>> {
    let at = |i: u8| args.get(i as usize).copied().unwrap_or(0);
    match mem {
        Mem::Ioctl(i) => Some(crate::ioctl::lookup(at(i))),
        Mem::Fcntl(i) => Some(crate::fcntl::lookup(at(i))),
        Mem::Prctl => Some(crate::prctl::lookup(at(0))),
        Mem::Command(i, list) => {
            let nr = at(i) as u32 as u64;
            Some(list.iter().find(|sub| sub.nr == nr))
        }
        _ => None,
    }
}

/// The memory behind `arg`, with its sub-table asked: never one of the `Mem` kinds that only name a sub-table.
pub fn mem(arg: &Arg, args: &[u64; 6]) -> Mem {
    match sub_call(arg.mem, args) {
        None => arg.mem,
        Some(Some(sub)) => sub.mem,
        Some(None) => Mem::Unknown,
    }
}

/// Is it a call on an option of a socket ([`crate::sockopt`])?
pub fn has_socket_option(call: &Syscall) -> bool {
    matches!(call.nr as u64, nr::SETSOCKOPT | nr::GETSOCKOPT)
}

/// What is known of `call` with these arguments.
pub fn resolve(call: &Syscall, args: &[u64; 6]) -> Resolved {
    let mut resolved = Resolved {
        sub: None,
        replay: call.replay,
        blocking: call.blocking,
        restart: call.restart,
        ret: call.ret,
        unknown: false,
    };
    for arg in call.args {
        resolved.unknown |= matches!(mem(arg, args), Mem::Unknown);
        match sub_call(arg.mem, args) {
            None => {}
            Some(None) => resolved.replay = Replay::Emulate,
            Some(Some(sub)) => {
                resolved.sub = Some(sub);
                resolved.replay = sub.replay;
                resolved.blocking = sub.blocking;
                resolved.restart = sub.restart;
                resolved.ret = sub.ret;
            }
        }
    }
    if has_socket_option(call) {
        resolved.unknown |= crate::sockopt::holds_pointers(args[1], args[2]);
        if let Some(errno) = crate::sockopt::refused(args[1], args[2]) {
            resolved.replay = Replay::Refuse(errno);
            resolved.blocking = Blocking::Never;
        }
    }
    resolved
}

#[cfg(test)]
mod tests;
