//! The vocabulary of events, as bytes.
//!
//! An event is a header of 32 bytes, then `nargs` argument words, then sections. Every length is a multiple of 8. The same
//! bytes lie in the ring, in the trace and in the replay's ring. Everything here is also used on untrusted
//! input, so parsing checks every length.

/// What an event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A system call that was entered and left without giving up the baton. `detail`: number, `value`: result.
    Syscall = 1,
    /// A system call was entered and the baton was given up. `detail`: number. Arguments and inputs are here.
    Enter = 2,
    /// The baton is held again after [`Kind::Enter`]. `value`: result. Outputs are here.
    Exit = 3,
    /// The thread gave up the baton at a gate, at its own place in the program.
    Yield = 4,
    /// The thread holds the baton again after [`Kind::Yield`].
    Resume = 5,
    /// First event of a new thread. `value`: its recorded thread id.
    ThreadStart = 6,
    /// Last event of a thread. `value`: exit status; `detail`: 1 when the last thread of the process ended with it.
    ThreadExit = 7,
    /// A non-deterministic instruction. `detail`: an [`Instruction`], `value`: its result (rdtsc: edx:eax; rdtscp: the first argument word is ecx).
    Instruction = 8,
    /// A signal is delivered here. `detail`: number; `value`: pc; section [`Tag::Siginfo`]. Arguments under `order`: how many
    /// calls that leave nothing in the log the thread has made since it last left something there, and a stamp.
    Signal = 9,
    /// A synchronous fault of the program. `detail`: signal number, `value`: pc; arguments: fault address, code, a hash of the thread's registers.
    /// Under `order`, when another thread may have caused it: in the hash also words from the stack pointer on; processor time of the
    /// thread; a stamp; `input_hash`: [`registers_hash`]; section [`Tag::State`] names the place, where that can be.
    Fault = 10,
    /// A slice ends in the middle of code; section [`Tag::State`] names the place.
    Cut = 11,
    /// A hash of all writable memory and this thread's registers. `value`: hash; arguments: bytes hashed, register hash.
    Hash = 12,
    /// A system call site is rewritten. Arguments: site, stub address, a stamp if the form has [`AMONG_THREADS`]; `detail`: form of the
    /// patch.
    Patch = 13,
    /// The process ended. `value`: wait status as of wait(2); `detail`: an [`EndReason`].
    End = 14,
    /// The first event. Arguments: format-specific words of the engine.
    Start = 15,
    /// First event of a new process. `value`: its recorded process id; `detail`: under `order` its birth (see
    /// [`Process::birth`](crate::session::Process::birth)), which is the order of these events; arguments: its parent's id, and
    /// under `order` which birth of its slot it is ([`Slot::born`](crate::session::Slot::born)).
    ProcessStart = 16,
    /// A process ended. `value`: wait status as of wait(2), -1 when not known; `detail`: a [`ProcessEnd`]; arguments: its process id,
    /// and of one that was found dead, which process of the trace it was, in order of their [`Kind::ProcessStart`]s (0: the first
    /// one of all, or one that had not begun), and of one that had not begun the slot that its first thread was to have, plus 1.
    ProcessEnd = 17,
    /// A process became another program. `value`: number of the memory image in the trace; arguments: process id; section
    /// [`Tag::Input`] with its name.
    Exec = 18,
    /// What the process's shared memory holds ([`Tag::Output`]), after another was killed that may have written to it unseen; or what
    /// the runtime wrote there for one that has ended (its robust futexes). Under `order`, with [`COPIED`] or more as `detail`: what a
    /// process got whose parent's other threads ran on when it was made.
    Shared = 19,
    /// Operations of synchronisation (`order`): section [`Tag::Entries`] with packed [`Entry`](crate::order::Entry)s of one thread.
    Sync = 20,
    /// The slot's thread is gone with its process, or by an exec (`order`): nothing more comes of it. `value`: wait status of the process,
    /// -1 when not known; `detail`: a [`ProcessEnd`], 0 for an exec; arguments: which birth of the slot it was, and of the
    /// [`Shard`](crate::order::Shard) that it had locked the number plus 1 (0: none) and the number of the operation, which counts.
    Gone = 21,
    /// What the world has decided for a thread, or for all (`det`). `detail`: a [question](crate::det::question); `value`: at which point; argument: the answer,
    /// where it is not just yes.
    Told = 22,
    /// What a goroutine did or was told (`goroutines`). `detail`: its kind; `flags`: the goroutine; `value`: depends on the kind; `input_hash`: where the
    /// program goes on, and above bit 32 what else the kind has; section [`Tag::Input`] with what it carries.
    Goroutine = 23,
}

/// Detail of [`Kind::Shared`]: memory of the program that was copied for the process. The runtime's tables have the numbers behind it.
pub const COPIED: u32 = 1;

impl Kind {
    /// Every kind, in order of its number.
    pub const ALL: [Kind; 23] = [
        Kind::Syscall,
        Kind::Enter,
        Kind::Exit,
        Kind::Yield,
        Kind::Resume,
        Kind::ThreadStart,
        Kind::ThreadExit,
        Kind::Instruction,
        Kind::Signal,
        Kind::Fault,
        Kind::Cut,
        Kind::Hash,
        Kind::Patch,
        Kind::End,
        Kind::Start,
        Kind::ProcessStart,
        Kind::ProcessEnd,
        Kind::Exec,
        Kind::Shared,
        Kind::Sync,
        Kind::Gone,
        Kind::Told,
        Kind::Goroutine,
    ];

    /// The kind with this number.
    pub fn from_u8(n: u8) -> Option<Kind> {
        Kind::ALL.get((n as usize).wrapping_sub(1)).copied()
    }

    /// Its name, in lower case, as `dump` and `info` print it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Syscall => "syscall",
            Kind::Enter => "enter",
            Kind::Exit => "exit",
            Kind::Yield => "yield",
            Kind::Resume => "resume",
            Kind::ThreadStart => "thread-start",
            Kind::ThreadExit => "thread-exit",
            Kind::Instruction => "instruction",
            Kind::Signal => "signal",
            Kind::Fault => "fault",
            Kind::Cut => "cut",
            Kind::Hash => "hash",
            Kind::Patch => "patch",
            Kind::End => "end",
            Kind::Start => "start",
            Kind::ProcessStart => "process-start",
            Kind::ProcessEnd => "process-end",
            Kind::Exec => "exec",
            Kind::Shared => "shared",
            Kind::Sync => "sync",
            Kind::Gone => "gone",
            Kind::Told => "told",
            Kind::Goroutine => "goroutine",
        }
    }
}

/// Non-deterministic instructions, as in [`Kind::Instruction`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Instruction {
    /// `rdtsc`
    Rdtsc = 1,
    /// `rdtscp`
    Rdtscp = 2,
    /// One at which a thread that waits by looking at memory has given way. The value: how many such instructions the thread has come to since
    /// the last of these events, or the last cut; the argument: where it is.
    GaveWay = 3,
    /// The end of a hooked function, at which a slice ended or a signal was delivered. The value: how many such functions the thread has called since
    /// the last of these events, or the last cut; the argument: where the program goes on.
    HookEnded = 4,
    /// What an operation in a hooked function was told that nothing in the program's memory says: that it fails, what a clock said. The value: how many times
    /// the thread has asked for its turn, or for such an answer, since the epoch's begin; the argument: the answer.
    HookAnswered = 5,
}

/// Why a recording ended, as in [`Kind::End`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EndReason {
    /// The program ended by itself or by a signal; the wait status is exact.
    Ended = 1,
    /// The recording was stopped while the program went on (trace full, disk full).
    Stopped = 2,
    /// The launcher was gone; how the program ended is not known.
    Unknown = 3,
}

/// How a process ended, as in [`Kind::ProcessEnd`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ProcessEnd {
    /// It said so itself, at a place in its own events.
    Told = 1,
    /// It was found dead: the event has slot [`NO_SLOT`], and stands where that was noticed.
    Found = 2,
}

/// Slot of an event that belongs to no thread.
pub const NO_SLOT: u16 = u16::MAX;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Tag {
    /// Memory that the kernel wrote; replay writes it to `address`.
    Output = 1,
    /// The beginning of an input, for people to read, and compared in replay. The whole input's hash is in `EventHeader::input_hash`.
    Input = 2,
    /// A NUL-terminated path (without its NUL), compared in replay.
    Path = 3,
    /// 16 bytes: content hash of the file mapped, or written while it was mapped, by this event; `address` is the file's length in bytes.
    File = 4,
    /// `siginfo_t`, 128 bytes.
    Siginfo = 5,
    /// A state that names a place in the code (serial engine; DESIGN 5).
    State = 6,
    /// The call wrote to a file that is mapped: `address` is the offset in the file; there are no bytes.
    Offset = 7,
    /// The call made the descriptor `address` and told it to the program; there are no bytes.
    Descriptor = 8,
    /// Packed entries, see [`Kind::Sync`].
    Entries = 9,
    /// What the call sent to an output of the program, where that can't be told from its arguments; `address` is the output: 1, 2.
    Sent = 10,
    /// The descriptor in the lower half of `address` is an output now, or a copy of one: 1 or 2 in the upper half, and 0x80 where an exec closes it.
    Stream = 11,
    /// A call that failed has changed memory nevertheless: `address` says how much, in the runtime's words; there are no bytes.
    Partly = 12,
    /// Memory that the kernel wrote, as [`Tag::Output`], of which a copy of the file is in the trace: a [`Reference`](crate::inputs::Reference).
    Reference = 13,
    /// What a mapping shows of a file of which the trace has no more than parts: a [`Reference`](crate::inputs::Reference) without a hash
    /// ([`crate::mapped`]). `address` is the file's length; 0 where a mapping has grown.
    Mapped = 14,
    /// As [`Tag::Sent`], of bytes of a file that are in a copy: a [reference](crate::inputs::Reference).
    SentReference = 15,
}

impl Tag {
    /// The tag with this number.
    pub fn from_u32(n: u32) -> Option<Tag> {
        Some(match n {
            1 => Tag::Output,
            2 => Tag::Input,
            3 => Tag::Path,
            4 => Tag::File,
            5 => Tag::Siginfo,
            6 => Tag::State,
            7 => Tag::Offset,
            8 => Tag::Descriptor,
            9 => Tag::Entries,
            10 => Tag::Sent,
            11 => Tag::Stream,
            12 => Tag::Partly,
            13 => Tag::Reference,
            14 => Tag::Mapped,
            15 => Tag::SentReference,
            _ => return None,
        })
    }
}

/// Hash of the general registers rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15; never 0.
pub fn registers_hash(general: &[u64; 16]) -> u64 {
    let mix = |h: u64, r: &u64| (h.rotate_left(23) ^ r).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    general.iter().fold(1, mix) | 1
}

/// The first 32 bytes of every event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct EventHeader {
    /// Length of the whole event in bytes, this header included; a multiple of 8.
    pub len: u32,
    /// A [`Kind`].
    pub kind: u8,
    /// Number of argument words after the header.
    pub nargs: u8,
    /// Slot of the thread whose event it is.
    pub slot: u16,
    /// Depends on the kind: system call number, signal number, ...
    pub detail: u32,
    /// Flags: [`FLAG_RESTARTED`] and others.
    pub flags: u32,
    /// Depends on the kind: result, status, hash, ...
    pub value: i64,
    /// Hash of all inputs of a system call (0 where there are none).
    pub input_hash: u64,
}

/// Forms of a patch: what is rewritten.
pub mod patch_form {
    /// A call: the `mov` of 5 bytes before the `syscall`.
    pub const BEFORE: u32 = 1;
    /// The `mov` of 7 bytes before it.
    pub const BEFORE_LONG: u32 = 2;
    /// The `syscall` and the 6-byte `cmp` after it.
    pub const AFTER: u32 = 3;
    /// A cpuid that the processor doesn't let trap.
    pub const CPUID: u32 = 4;
    /// In ld.so's resolver: its beginning, its end, or what saves the vector registers.
    pub const RESOLVER: u32 = 5;
    /// Instructions that change memory in one step: in all code, when the first thread is made.
    pub const LOCKED: u32 = 6;
    /// As above, in code that was mapped later.
    pub const LOCKED_WITH_CODE: u32 = 7;
    /// An instruction that reads the clock: when the first thread is made.
    pub const CLOCK: u32 = 8;
    /// Instructions at which threads that wait by looking at memory give way: in all code, when the first thread is made.
    pub const PAUSES: u32 = 9;
    /// As above, in code that was mapped later.
    pub const PAUSES_WITH_CODE: u32 = 10;
    /// As above, one at which a thread was found in the same state again.
    pub const SPIN: u32 = 11;
}

/// What a yield tells by its detail: it comes after an instruction that was emulated, not at the end of a gate.
pub const YIELD_AFTER_INSTRUCTION: u32 = 1;
/// As above: it comes within a hooked function, whose operation has not come to its turn. The value: as of [`Instruction::HookAnswered`].
pub const YIELD_FOR_TURN: u32 = 2;
/// As above: the thread has come to the end of an epoch, at the end of a gate or of a hooked function, or in a call (value 0), or before a call, which it makes
/// when it goes on (value 1); or in the middle of the program's code ([`ENDS_IN_CODE`], [`ENDS_AT_FAULT`]).
pub const YIELD_AT_EPOCH_END: u32 = 3;
/// Value of such a yield, which comes right behind a [`Kind::Cut`], or where the thread has just had the baton again.
pub const ENDS_IN_CODE: i64 = 2;
/// Value of one that comes where the thread faults.
pub const ENDS_AT_FAULT: i64 = 3;
/// Value of one that comes at the end of a call which has a signal mask of its own, before the thread has its own mask again: a signal that came is delivered under that mask.
pub const ENDS_UNDER_MASK: i64 = 4;
/// As above: the thread faults, and others go on before it makes the instruction once more.
pub const YIELD_AT_FAULT: u32 = 4;
/// As above: the thread comes to an instruction that has a stub. The value: how many of them it has come to since it had the baton at an epoch's end.
pub const YIELD_AT_INSTRUCTION: u32 = 5;

/// Bit of a patch's form: it was made while other threads ran, at the turn of a stamp.
pub const AMONG_THREADS: u32 = 1 << 8;
/// The call was interrupted and will be made again by the program's own instruction after a handler ran (SA_RESTART).
pub const FLAG_RESTARTED: u32 = 1;
/// Outputs were found by comparing memory, because the table does not know the call.
pub const FLAG_TRACKED: u32 = 2;
/// The agent took the baton while the thread was inside the call.
pub const FLAG_STOLEN: u32 = 4;
/// In what the leader of epochs logs, never in a trace: the call wasn't made, and its output is held until the epoch is good.
pub const FLAG_HELD: u32 = 8;

/// The flags of an event that maps a file, or writes to a mapped one, hold the file's number in the session above this bit: mappings of one
/// file are one memory, whatever it contains when it is mapped.
pub const FILE_NUMBER_SHIFT: u32 = 16;

/// The flags of a successful clone(2) and its kin hold the slot of the new thread above this bit.
pub const SLOT_SHIFT: u32 = 16;

/// Bytes of [`EventHeader`].
pub const HEADER_LEN: usize = 32;
/// Most argument words of an event.
pub const MAX_ARGS: usize = 8;
/// Largest event accepted, in bytes.
pub const MAX_EVENT: usize = 1 << 30;
/// Bytes of a section's own header.
pub const SECTION_LEN: usize = 16;

const _: () = assert!(core::mem::size_of::<EventHeader>() == HEADER_LEN);

/// The header of a section; its bytes follow, padded with zeros to a multiple of 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct SectionHeader {
    /// Where the bytes belong, or another word, see [`Tag`].
    pub address: u64,
    /// Bytes without padding.
    pub len: u32,
    /// A [`Tag`].
    pub tag: u32,
}

const _: () = assert!(core::mem::size_of::<SectionHeader>() == SECTION_LEN);

/// Why bytes are no event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// More bytes are needed: at least this many in all.
    Short(usize),
    /// The bytes can never become an event.
    Bad(&'static str),
}

/// An event in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its header.
    pub header: EventHeader,
    /// Its kind.
    pub kind: Kind,
    bytes: &'a [u8],
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64_of(&b[at..at + 8])
}

fn u64_of(b: &[u8]) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&b[..8]);
    u64::from_le_bytes(w)
}

impl EventHeader {
    /// Is it a yield that comes neither at the end of a gate, nor behind a cut or an emulated instruction, but where its detail says?
    pub fn yields_elsewhere(&self) -> bool {
        let elsewhere = [
            YIELD_FOR_TURN,
            YIELD_AT_EPOCH_END,
            YIELD_AT_FAULT,
            YIELD_AT_INSTRUCTION,
        ];
        self.kind == Kind::Yield as u8 && elsewhere.contains(&self.detail)
    }

    /// Is it the end of an epoch for its thread ([`YIELD_AT_EPOCH_END`])?
    pub fn is_end_of_epoch(&self) -> bool {
        self.kind == Kind::Yield as u8 && self.detail == YIELD_AT_EPOCH_END
    }

    /// Reads a header from the start of `bytes`, checking it by itself.
    pub fn parse(bytes: &[u8]) -> Result<EventHeader, ParseError> {
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Short(HEADER_LEN));
        }
        let h = EventHeader {
            len: u32_at(bytes, 0),
            kind: bytes[4],
            nargs: bytes[5],
            slot: u16::from_le_bytes([bytes[6], bytes[7]]),
            detail: u32_at(bytes, 8),
            flags: u32_at(bytes, 12),
            value: u64_at(bytes, 16) as i64,
            input_hash: u64_at(bytes, 24),
        };
        if Kind::from_u8(h.kind).is_none() {
            return Err(ParseError::Bad("unknown event kind"));
        }
        if h.nargs as usize > MAX_ARGS {
            return Err(ParseError::Bad("too many arguments"));
        }
        let len = h.len as usize;
        if len % 8 != 0 || len > MAX_EVENT || len < HEADER_LEN + 8 * h.nargs as usize {
            return Err(ParseError::Bad("impossible event length"));
        }
        Ok(h)
    }

    /// The header as bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0..4].copy_from_slice(&self.len.to_le_bytes());
        b[4] = self.kind;
        b[5] = self.nargs;
        b[6..8].copy_from_slice(&self.slot.to_le_bytes());
        b[8..12].copy_from_slice(&self.detail.to_le_bytes());
        b[12..16].copy_from_slice(&self.flags.to_le_bytes());
        b[16..24].copy_from_slice(&self.value.to_le_bytes());
        b[24..32].copy_from_slice(&self.input_hash.to_le_bytes());
        b
    }
}

impl<'a> Event<'a> {
    /// Reads the event at the start of `bytes` and checks it and all its sections.
    pub fn parse(bytes: &'a [u8]) -> Result<Event<'a>, ParseError> {
        let header = EventHeader::parse(bytes)?;
        let len = header.len as usize;
        if bytes.len() < len {
            return Err(ParseError::Short(len));
        }
        let event = Event {
            header,
            kind: Kind::from_u8(header.kind).ok_or(ParseError::Bad("unknown event kind"))?,
            bytes: &bytes[..len],
        };
        let mut at = HEADER_LEN + 8 * header.nargs as usize;
        while at < len {
            if len - at < SECTION_LEN {
                return Err(ParseError::Bad("torn section"));
            }
            let slen = u32_at(bytes, at + 8) as usize;
            let padded = slen
                .checked_add(7)
                .ok_or(ParseError::Bad("section length"))?
                & !7;
            if Tag::from_u32(u32_at(bytes, at + 12)).is_none() {
                return Err(ParseError::Bad("unknown section"));
            }
            if padded > len - at - SECTION_LEN {
                return Err(ParseError::Bad("section longer than its event"));
            }
            at += SECTION_LEN + padded;
        }
        Ok(event)
    }

    /// All bytes of the event.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Argument word `i`, 0 where there is none.
    pub fn arg(&self, i: usize) -> u64 {
        if i < self.header.nargs as usize {
            u64_at(self.bytes, HEADER_LEN + 8 * i)
        } else {
            0
        }
    }

    /// The sections, in order.
    pub fn sections(&self) -> Sections<'a> {
        Sections {
            rest: &self.bytes[HEADER_LEN + 8 * self.header.nargs as usize..],
        }
    }
}

/// A section of an event.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// See [`SectionHeader::address`].
    pub address: u64,
    /// What the bytes are.
    pub tag: Tag,
    /// The bytes, without padding.
    pub bytes: &'a [u8],
}

/// Iterator over [`Section`]s of a parsed event.
#[derive(Clone)]
pub struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sections<'a> {
    type Item = Section<'a>;

    fn next(&mut self) -> Option<Section<'a>> {
        if self.rest.len() < SECTION_LEN {
            return None;
        }
        let len = u32_at(self.rest, 8) as usize;
        let padded = (len + 7) & !7;
        let section = Section {
            address: u64_of(self.rest),
            tag: Tag::from_u32(u32_at(self.rest, 12))?,
            bytes: self.rest.get(SECTION_LEN..SECTION_LEN + len)?,
        };
        self.rest = self.rest.get(SECTION_LEN + padded..).unwrap_or(&[]);
        Some(section)
    }
}

/// Bytes of a section with `len` bytes of content, header and padding included.
pub const fn section_len(len: usize) -> usize {
    SECTION_LEN + ((len + 7) & !7)
}
