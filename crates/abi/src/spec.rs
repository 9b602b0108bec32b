//! The language in which one system call is described.
//!
//! From one description follow: what record copies into the log, what replay writes back, whether the baton is kept, how
//! `dump` prints the call, and the coverage page in the docs. The table itself is in [`crate::syscalls`].

use crate::effect::{Effect, Mask, NoWait, Timeout};

/// How replay treats a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    /// Result and outputs come from the log; the kernel is not asked.
    Emulate,
    /// The call is made again, with recorded addresses, because it shapes the address space.
    Reexecute,
    /// The runtime has its own code for it (threads, signals, futexes, exit).
    Special,
    /// The program gets this errno (positive number) without the kernel being asked.
    Refuse(i32),
}

/// Whether a call may wait, and so must be able to give up the baton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    /// Proven prompt: the kernel never sleeps for an outside event. The baton is kept and memory is written directly.
    Never,
    /// Rarely waits (disk, name look-up): the baton is kept, but can be taken by the agent.
    Rarely,
    /// Waits when the descriptor in this argument is not ready.
    Fd(u8),
    /// Waits, by its nature: the baton is handed on first.
    Always,
}

/// What becomes of a call that a signal interrupts (signal(7), "Interruption of system calls").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// It is never interrupted.
    No,
    /// It is made again if the handler has SA_RESTART, else it fails with EINTR.
    Handler,
    /// It fails with EINTR whatever the handler's flags.
    Never,
}

/// What a program that is recorded in epochs may do before it is known whether the open one is good (Respec 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speculation {
    /// Anything: nothing of it is left outside of the process.
    Free,
    /// It is made at once, unless it could notice that output is held: nobody else is told anything by it.
    Asks,
    /// Its output is held, where that can be told truly; else it is a commit.
    Holds,
    /// The epoch is over, and good, before it is made.
    Commits,
}

/// How many bytes, in terms of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// This many.
    Bytes(u32),
    /// As many as this argument says.
    Arg(u8),
    /// This argument times so many bytes.
    ArgTimes(u8, u32),
    /// As many as the result says.
    Result,
    /// The result times so many bytes.
    ResultTimes(u32),
    /// The 32-bit number to which this argument points (socklen_t and the like).
    /// As a capacity: its value before the call. As the length written: the smaller of its values before and after.
    Deref32(u8),
    /// An fd_set or cpu mask for so many descriptors: the argument, in bits, rounded up to 8 bytes.
    Bits(u8),
    /// The two arguments multiplied (and a constant factor).
    Product(u8, u8, u32),
    /// This argument and so many bytes more (a System V message: its type comes before its text).
    ArgPlus(u8, u32),
    /// The result and so many bytes more.
    ResultPlus(u32),
    /// As [`Size::Deref32`], and so many bytes more.
    Deref32Plus(u8, u32),
    /// One byte for each page of 4096 bytes that this argument's bytes touch (mincore).
    Pages(u8),
    /// Depends on the 32-bit number to which this argument points: if it is `value`, the one, else the other.
    Chosen {
        /// The argument.
        at: u8,
        /// The number.
        value: u32,
        /// How many bytes then.
        then: u32,
        /// How many else.
        otherwise: u32,
    },
}

impl Size {
    /// The size in bytes. `args` are [`Syscall::canonical`], `result` is the call's, and `deref` reads the 32-bit number at an address.
    ///
    /// What is written on success is never more than the capacity, whatever the result says (`MSG_TRUNC`, a buffer of
    /// length 0 that only asks for the length), so take the smaller of the two.
    pub fn bytes(self, args: &[u64; 6], result: i64, mut deref: impl FnMut(u64) -> u32) -> u64 {
        // The kernel takes no negative length: neither of an int nor of more than SSIZE_MAX bytes.
        let arg = |i: u8| (args.get(i as usize).copied().unwrap_or(0) as i64).max(0) as u64;
        let pointer = |i: u8| args.get(i as usize).copied().unwrap_or(0);
        let result = result.max(0) as u64;
        match self {
            Size::Bytes(n) => n as u64,
            Size::Arg(i) => arg(i),
            Size::ArgTimes(i, n) => arg(i).saturating_mul(n as u64),
            Size::Result => result,
            Size::ResultTimes(n) => result.saturating_mul(n as u64),
            Size::Deref32(i) => match pointer(i) {
                0 => 0,
                at => deref(at) as u64,
            },
            Size::Bits(i) => arg(i).div_ceil(64).saturating_mul(8),
            Size::Product(i, j, n) => arg(i).saturating_mul(arg(j)).saturating_mul(n as u64),
            Size::ArgPlus(i, n) => arg(i).saturating_add(n as u64),
            Size::ResultPlus(n) => result.saturating_add(n as u64),
            Size::Deref32Plus(i, n) => match pointer(i) {
                0 => 0,
                at => deref(at) as u64 + n as u64,
            },
            Size::Pages(i) => arg(i).div_ceil(4096),
            Size::Chosen {
                at,
                value,
                then,
                otherwise,
            } => match pointer(at) {
                0 => otherwise as u64,
                at if deref(at) == value => then as u64,
                _ => otherwise as u64,
            },
        }
    }
}

/// What memory a pointer argument stands for. A null pointer always stands for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mem {
    /// The argument is no pointer, or one that the kernel does not follow.
    None,
    /// A NUL-terminated string that the kernel reads (a path, a name).
    Path,
    /// A NULL-terminated array of strings (argv, envp).
    Strings,
    /// The kernel reads so many bytes.
    In(Size),
    /// The kernel can write `cap` bytes; on success it wrote `used`.
    Out {
        /// Capacity of the program's buffer.
        cap: Size,
        /// Bytes written on success.
        used: Size,
    },
    /// As `Out`, but the bytes are also read.
    InOut {
        /// Capacity of the program's buffer.
        cap: Size,
        /// Bytes written on success.
        used: Size,
    },
    /// As `Out`, but also written when the call fails (the remaining time of nanosleep).
    OutAlways(Size),
    /// As `InOut`, but also written when the call fails (the time left by select, the events of poll).
    InOutAlways(Size),
    /// An array of iovecs, whose number this argument says, that the kernel reads from (writev).
    IovecIn(u8),
    /// As `IovecIn`, but the kernel writes to them, as many bytes as the result says (readv).
    IovecOut(u8),
    /// A msghdr that is sent (name, iovecs, control).
    MsghdrIn,
    /// A msghdr that is received into.
    MsghdrOut,
    /// An array of mmsghdr, whose number this argument says, that is sent; the kernel writes each msg_len.
    MmsghdrIn(u8),
    /// An array of mmsghdr, whose number this argument says, that is received into.
    MmsghdrOut(u8),
    /// Depends on the request in this argument: see [`crate::ioctl`].
    Ioctl(u8),
    /// Depends on the command in this argument: see [`crate::fcntl`].
    Fcntl(u8),
    /// Depends on the option in argument 0: see [`crate::prctl`].
    Prctl,
    /// Depends on the command in this argument, which is looked up in this list; a command that is not there is unknown.
    Command(u8, &'static [SubCall]),
    /// The table does not know: the write-tracking fallback finds out.
    Unknown,
}

/// How an argument is printed by `dump`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Print {
    /// As a signed decimal number.
    Int,
    /// As an unsigned decimal number.
    Uint,
    /// In hexadecimal.
    Hex,
    /// As an address, or NULL.
    Ptr,
    /// As a descriptor (AT_FDCWD by name).
    Fd,
    /// As the id of a process, a group or a thread, which is a signed decimal number.
    Pid,
    /// As such an id where the argument `which` is a number of `from..=to`; else as another signed number.
    PidBy {
        /// The argument that says what this one is.
        which: u8,
        /// The first number with which it is an id.
        from: u32,
        /// The last one.
        to: u32,
    },
    /// In octal.
    Mode,
    /// As the name of a signal.
    Signal,
    /// By the names of its bits or values, found by [`crate::syscalls::flag_name`].
    Flags(&'static [(u64, &'static str)]),
    /// As one name of a list of values.
    Enum(&'static [(u64, &'static str)]),
}

/// Which bits of its register the kernel looks at; a program may leave anything in the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// The lower 32, as a signed number.
    Signed,
    /// The lower 32, as an unsigned number.
    Unsigned,
    /// All.
    Full,
}

/// One argument of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Its name in the man page.
    pub name: &'static str,
    /// How it is printed.
    pub print: Print,
    /// The memory behind it.
    pub mem: Mem,
    /// Which of its bits count.
    pub width: Width,
}

/// How a result is printed by `dump`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ret {
    /// As a number.
    Int,
    /// As an address.
    Ptr,
    /// As a new descriptor.
    Fd,
    /// As the id of a process, a group or a thread.
    Pid,
}

/// One system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syscall {
    /// Its x86-64 number.
    pub nr: u16,
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [Arg],
    /// How its result is printed.
    pub ret: Ret,
    /// How replay treats it.
    pub replay: Replay,
    /// Whether it may wait.
    pub blocking: Blocking,
    /// What a signal does to it.
    pub restart: Restart,
    /// How long it waits at most, and where that is said.
    pub timeout: Timeout,
    /// The flag by which it is told not to wait.
    pub no_wait: Option<NoWait>,
    /// The signal mask under which it waits.
    pub mask: Option<Mask>,
    /// Whoever makes it changes nothing outside of the process and needs no descriptor.
    pub local: bool,
    /// It changes nothing, for nobody: the caller is told something.
    pub asks: bool,
    /// The process may not look into itself any more, nor into copies of it.
    pub hides: bool,
    /// libc finds it in the vDSO.
    pub vdso: bool,
    /// What the user is told when it is refused: a bit of [`crate::notes`], or 0.
    pub note: u64,
    /// What it does to descriptors, files, the address space, processes, signals and clocks.
    pub effect: Effect,
    /// The same in the words of the table.
    pub does: &'static str,
}

impl Syscall {
    /// Does it read from a descriptor into one buffer, and nothing else?
    #[inline]
    pub fn reads_one_buffer(&self) -> bool {
        matches!(self.effect, Effect::Reads(..)) && matches!(self.args[1].mem, Mem::Out { .. })
    }

    /// Is its result, if it transfers something, a number of bytes, and not of messages?
    pub fn counts_bytes(&self) -> bool {
        let is_list = |m: &Mem| matches!(m, Mem::MmsghdrIn(_) | Mem::MmsghdrOut(_));
        !self.args.iter().any(|a| is_list(&a.mem))
    }

    /// Does it write to a descriptor from one buffer, and nothing else?
    #[inline]
    pub fn writes_one_buffer(&self) -> bool {
        matches!(self.effect, Effect::Writes(..)) && matches!(self.args[1].mem, Mem::In(_))
    }

    /// The arguments as the kernel understands them: without what the program left in bits that do not count. It is for
    /// reading, comparing and printing; sizes are only right for these.
    pub fn canonical(&self, args: &[u64; 6]) -> [u64; 6] {
        let mut canonical = [0; 6];
        for (arg, (to, &from)) in self.args.iter().zip(canonical.iter_mut().zip(args)) {
            *to = match arg.width {
                Width::Signed => from as u32 as i32 as u64,
                Width::Unsigned => from as u32 as u64,
                Width::Full => from,
            };
        }
        canonical
    }
}

/// What a sub-table (ioctl request, fcntl command, prctl option) says of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubCall {
    /// Its number.
    pub nr: u64,
    /// Its name.
    pub name: &'static str,
    /// The memory behind the call's pointer argument.
    pub mem: Mem,
    /// How replay treats it.
    pub replay: Replay,
    /// Whether it may wait.
    pub blocking: Blocking,
    /// What a signal does to it.
    pub restart: Restart,
    /// How its result is printed.
    pub ret: Ret,
    /// It changes nothing, for nobody.
    pub asks: bool,
    /// The process may not look into itself any more, nor into copies of it.
    pub hides: bool,
}
