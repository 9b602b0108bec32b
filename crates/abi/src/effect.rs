//! What a call does besides what it reads and writes in memory: to descriptors and the files behind them, to the address space, to threads and
//! processes, to signals and clocks. The table says it of each call ([`crate::syscalls`]), and whoever follows calls asks for that instead of for
//! their names.
//!
//! A number in here is the position of an argument.

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing that anybody follows.
    Other,

    /// It reads from a descriptor into memory, and from where.
    Reads(u8, Position),
    /// It writes from memory to a descriptor, and to where.
    Writes(u8, Position),
    /// It receives from a socket.
    Receives(u8),
    /// It sends to a socket.
    Sends(u8),
    /// It takes a message from the queue behind a descriptor.
    Takes(u8),
    /// It puts a message into the queue behind a descriptor.
    Puts(u8),
    /// It moves bytes from one descriptor to another, past the program's memory.
    Moves(Movement),
    /// It wakes those who wait for the object behind a descriptor, and transfers nothing.
    Notifies(u8),
    /// It waits for one of several descriptors.
    Polls,
    /// It waits for one of the set behind a descriptor (epoll).
    PollsSet(u8),

    /// It opens a file by its name or handle.
    OpensFile(Opening),
    /// It makes descriptors of something else.
    Opens(Opened),
    /// It makes another descriptor of what is behind this one.
    Duplicates(u8),
    /// It does so at a given number, whose old descriptor is closed.
    Replaces(Replacement),
    /// It gives a command to what is behind a descriptor; which one, a sub-table knows.
    Commands(u8),
    /// It closes a descriptor.
    Closes(u8),
    /// It closes descriptors from the number in the first of these arguments to that in the second, by the flags in the third.
    ClosesRange(u8, u8, u8),

    /// It reads where the link with this name leads; the buffer and its size follow.
    ReadsLink(u8),
    /// It sets the length of the file behind a descriptor.
    Truncates(u8),
    /// It sets the length of the file with a name.
    TruncatesNamed(u8),
    /// It allocates room in the file behind a descriptor, or makes holes.
    Allocates(u8),

    /// It maps memory.
    Maps,
    /// It unmaps memory.
    Unmaps,
    /// It changes what memory may be used for.
    Protects,
    /// It moves a mapping, or changes its length.
    Remaps,
    /// It advises the kernel about memory.
    Advises,
    /// It maps a System V segment.
    Attaches,
    /// It unmaps one.
    Detaches,
    /// It makes such a segment, or asks about one.
    Segments,
    /// It moves the end of the heap.
    Breaks,
    /// It locks memory; at once, or when the flags in this argument say so, page by page as it is touched.
    Locks(Option<u8>),
    /// It unlocks memory.
    Unlocks,
    /// It locks all memory.
    LocksAll,
    /// It unlocks all memory.
    UnlocksAll,

    /// It makes a thread or a process, as the flags in its first argument say.
    Clones,
    /// It makes a process that has a copy of its parent's memory.
    Forks,
    /// It makes a process that has its parent's memory, until it becomes another program or ends.
    Vforks,
    /// The process becomes another program.
    Execs,
    /// The thread ends.
    EndsThread,
    /// The process ends.
    EndsProcess,
    /// It waits for a child, and tells of it.
    AwaitsChild,
    /// The thread takes leave of what it shares with others.
    Unshares,
    /// It says, or is told, on which processors a thread may run.
    Affinity,
    /// The thread lets others run.
    Yields,
    /// It waits at a word of memory, or wakes those who do.
    Futex,
    /// It sets or tells a process's parent, group or session; that of the calling process, where the call names none.
    Family,
    /// It sets a limit, and may tell what it was.
    Limits(Limit),
    /// It says which word is cleared when the thread ends.
    SetsExitWord,
    /// It says where the thread's list of robust futexes is.
    SetsRobustList,
    /// It tells where that of a thread is.
    TellsRobustList,
    /// It sets or tells the base of a segment.
    SegmentBase,
    /// It sets or tells one of the options of a process or a thread.
    Options,
    /// It installs a filter of calls.
    Filters,
    /// It traces a thread, or is told of one.
    Traces,

    /// It sends a signal.
    Signals(Signal),
    /// It says what a signal does.
    SetsAction,
    /// It says which signals are blocked.
    SetsMask,
    /// It says on which stack handlers run.
    SetsStack,
    /// A handler is over.
    Returns,
    /// It tells which signals are pending.
    TellsPending,
    /// It takes a signal, and waits for one.
    TakesSignal,
    /// It waits for a handler to run.
    Pauses,

    /// It waits for a time.
    Sleeps,
    /// It makes a timer.
    MakesTimer,
    /// It sets one, which may be behind a descriptor.
    SetsTimer(Option<u8>),
    /// It tells of one.
    TellsTimer,
    /// It deletes one.
    DeletesTimer,
    /// It sets one of the timers that every process has.
    SetsIntervalTimer,
    /// It tells of one.
    TellsIntervalTimer,

    /// It tells of a clock, of chance, or of where the thread runs.
    Tells(Told),
}

/// Where in a file a call reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// At the descriptor's own position, which moves.
    Own,
    /// At the offset in this argument.
    At(u8),
    /// At the offset in this argument, or at the descriptor's own position where that is -1.
    AtOrOwn(u8),
}

/// A call that moves bytes from one descriptor to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    /// From which.
    pub from: u8,
    /// Where the offset in that is found; without one it is the descriptor's own.
    pub from_offset: Option<u8>,
    /// To which.
    pub to: u8,
    /// Where the offset in that is found.
    pub to_offset: Option<u8>,
    /// How many bytes at most.
    pub len: u8,
    /// Flags of splice(2), where the call has some.
    pub flags: Option<u8>,
    /// What is moved stays where it was, too: between two pipes (tee).
    pub leaves: bool,
}

/// A call that opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The directory in which relative names are looked up; else the current one.
    pub dir: Option<u8>,
    /// The name; without one there is a handle.
    pub path: Option<u8>,
    /// How it is opened.
    pub flags: OpenFlags,
}

/// Where the flags of open(2) are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFlags {
    /// In this argument.
    In(u8),
    /// In the first word behind this argument.
    Behind(u8),
    /// They are O_CREAT, O_WRONLY and O_TRUNC.
    Creates,
}

/// What is behind new descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// A file in memory.
    Memory,
    /// Both ends of a pipe, whose numbers are told behind this argument.
    Pipe(u8),
    /// A pair of sockets, as above.
    SocketPair(u8),
    /// A socket.
    Socket,
    /// The socket of a connection that came to this one.
    Accepted(u8),
    /// An event counter (eventfd).
    Counter,
    /// A timer.
    Timer,
    /// A set of descriptors (epoll).
    Set,
    /// A watch on files.
    Watch,
    /// Signals.
    Signals,
    /// What another process has behind one of its own.
    Foreign,
    /// Something else.
    Object,
}

/// A call that gives a descriptor a given number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// What is behind this descriptor ...
    pub from: u8,
    /// ... is behind this one, too.
    pub onto: u8,
    /// Flags, O_CLOEXEC.
    pub flags: Option<u8>,
}

/// A call that sets a limit. It is that of the process in the first argument, unless that is the resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What is limited.
    pub resource: u8,
    /// Where the new limit is.
    pub new: u8,
}

/// A call that sends a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// To whom.
    pub to: Receiver,
    /// The signal.
    pub signal: u8,
    /// What the receiver is told of it, where the sender says that.
    pub info: Option<u8>,
}

/// Whom a signal is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// The process or the group in the first argument.
    Process,
    /// The thread in the first argument.
    Thread,
    /// The thread in the second argument, which is to be one of the process in the first.
    ThreadOf,
    /// The process behind the descriptor in the first argument.
    Descriptor,
}

/// What a call tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A clock.
    Clock,
    /// How fine a clock is.
    Resolution,
    /// The time of day, in s and us.
    TimeOfDay,
    /// The time of day, in s.
    Seconds,
    /// How long the process has run, in ticks.
    Ticks,
    /// What the process has used.
    Usage,
    /// The processor on which the thread runs.
    Processor,
    /// Chance.
    Random,
    /// How the machine is.
    Machine,
    /// The calling process's id.
    ProcessId,
    /// The calling thread's id.
    ThreadId,
}

/// How long a call waits at most, and where it is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// It isn't said.
    None,
    /// So many ms as are in this argument.
    Ms(u8),
    /// As long as the `struct timeval` behind this argument says.
    Timeval(u8),
    /// As long as the `struct timespec` behind this argument says.
    Timespec(u8),
    /// Until the time of CLOCK_REALTIME behind this argument.
    Until(u8),
}

/// The flag by which a call is told not to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoWait {
    /// In which argument.
    pub at: u8,
    /// The flag.
    pub flag: u64,
}

/// The signal mask under which a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask {
    /// Where it is.
    pub at: u8,
    /// Its size; without one, what is there is a {pointer, size} pair.
    pub size: Option<u8>,
}

impl Effect {
    /// The descriptor to which the call writes bytes.
    pub const fn written(self) -> Option<u8> {
        match self {
            Effect::Writes(fd, _) | Effect::Sends(fd) => Some(fd),
            Effect::Moves(m) => Some(m.to),
            _ => None,
        }
    }

    /// The descriptor from which the call takes what others have put there; of a new connection, the socket that listens.
    pub const fn taken_from(self) -> Option<u8> {
        match self {
            Effect::Reads(fd, _)
            | Effect::Receives(fd)
            | Effect::Takes(fd)
            | Effect::PollsSet(fd) => Some(fd),
            Effect::Moves(m) => Some(m.from),
            Effect::Opens(Opened::Accepted(fd)) => Some(fd),
            _ => None,
        }
    }

    /// Does a call that waits for a descriptor do so until there is room for what it writes, or until it is connected; and not until there is something
    /// to take?
    pub const fn waits_for_room(self) -> bool {
        matches!(
            self,
            Effect::Writes(..)
                | Effect::Sends(_)
                | Effect::Puts(_)
                | Effect::Moves(_)
                | Effect::Notifies(_)
        )
    }

    /// Does it make a thread or a process?
    pub const fn makes_thread(self) -> bool {
        matches!(self, Effect::Clones | Effect::Forks | Effect::Vforks)
    }

    /// Does it say, or change, what is mapped where and what may be done there?
    pub const fn shapes_memory(self) -> bool {
        matches!(
            self,
            Effect::Maps
                | Effect::Unmaps
                | Effect::Protects
                | Effect::Remaps
                | Effect::Advises
                | Effect::Attaches
                | Effect::Detaches
        )
    }

    /// Does it lock memory, or unlock it?
    pub const fn locks_memory(self) -> bool {
        matches!(
            self,
            Effect::Locks(_) | Effect::Unlocks | Effect::LocksAll | Effect::UnlocksAll
        )
    }
}

/// An effect, in the words of the table ([`crate::syscalls`]). `NAMES` is the list of the call's arguments.
macro_rules! effect {
    (reads $fd:ident) => { $crate::effect::Effect::Reads($crate::effect::argument!($fd), $crate::effect::Position::Own) };
    (reads $fd:ident at $o:ident) => {
        $crate::effect::Effect::Reads($crate::effect::argument!($fd), $crate::effect::Position::At($crate::effect::argument!($o)))
    };
    (reads $fd:ident at $o:ident or own) => {
        $crate::effect::Effect::Reads($crate::effect::argument!($fd), $crate::effect::Position::AtOrOwn($crate::effect::argument!($o)))
    };
    (writes $fd:ident) => { $crate::effect::Effect::Writes($crate::effect::argument!($fd), $crate::effect::Position::Own) };
    (writes $fd:ident at $o:ident) => {
        $crate::effect::Effect::Writes($crate::effect::argument!($fd), $crate::effect::Position::At($crate::effect::argument!($o)))
    };
    (writes $fd:ident at $o:ident or own) => {
        $crate::effect::Effect::Writes($crate::effect::argument!($fd), $crate::effect::Position::AtOrOwn($crate::effect::argument!($o)))
    };
    (receives $fd:ident) => { $crate::effect::Effect::Receives($crate::effect::argument!($fd)) };
    (sends $fd:ident) => { $crate::effect::Effect::Sends($crate::effect::argument!($fd)) };
    (takes signal) => { $crate::effect::Effect::TakesSignal };
    (takes $fd:ident) => { $crate::effect::Effect::Takes($crate::effect::argument!($fd)) };
    (puts $fd:ident) => { $crate::effect::Effect::Puts($crate::effect::argument!($fd)) };
    (moves $from:ident $(at $fo:ident)? to $to:ident $(at $to_o:ident)? length $len:ident $(by $flags:ident)?) => {
        $crate::effect::effect!(@moves false, $from [$($fo)?] $to [$($to_o)?] $len [$($flags)?])
    };
    (copies $from:ident to $to:ident length $len:ident by $flags:ident) => {
        $crate::effect::effect!(@moves true, $from [] $to [] $len [$flags])
    };
    (@moves $leaves:literal, $from:ident [$($fo:ident)?] $to:ident [$($to_o:ident)?] $len:ident [$($flags:ident)?]) => {
        $crate::effect::Effect::Moves($crate::effect::Movement {
            from: $crate::effect::argument!($from),
            from_offset: $crate::effect::effect!(@maybe $($fo)?),
            to: $crate::effect::argument!($to),
            to_offset: $crate::effect::effect!(@maybe $($to_o)?),
            len: $crate::effect::argument!($len),
            flags: $crate::effect::effect!(@maybe $($flags)?),
            leaves: $leaves,
        })
    };
    (@maybe) => { None };
    (@maybe $a:ident) => { Some($crate::effect::argument!($a)) };
    (notifies $fd:ident) => { $crate::effect::Effect::Notifies($crate::effect::argument!($fd)) };
    (polls) => { $crate::effect::Effect::Polls };
    (polls $fd:ident) => { $crate::effect::Effect::PollsSet($crate::effect::argument!($fd)) };

    (opens memory) => { $crate::effect::Effect::Opens($crate::effect::Opened::Memory) };
    (opens pipe $at:ident) => { $crate::effect::Effect::Opens($crate::effect::Opened::Pipe($crate::effect::argument!($at))) };
    (opens sockets $at:ident) => { $crate::effect::Effect::Opens($crate::effect::Opened::SocketPair($crate::effect::argument!($at))) };
    (opens socket) => { $crate::effect::Effect::Opens($crate::effect::Opened::Socket) };
    (opens accepted $fd:ident) => { $crate::effect::Effect::Opens($crate::effect::Opened::Accepted($crate::effect::argument!($fd))) };
    (opens counter) => { $crate::effect::Effect::Opens($crate::effect::Opened::Counter) };
    (opens timer) => { $crate::effect::Effect::Opens($crate::effect::Opened::Timer) };
    (opens set) => { $crate::effect::Effect::Opens($crate::effect::Opened::Set) };
    (opens watch) => { $crate::effect::Effect::Opens($crate::effect::Opened::Watch) };
    (opens signals) => { $crate::effect::Effect::Opens($crate::effect::Opened::Signals) };
    (opens foreign) => { $crate::effect::Effect::Opens($crate::effect::Opened::Foreign) };
    (opens object) => { $crate::effect::Effect::Opens($crate::effect::Opened::Object) };
    (opens $path:ident $(below $dir:ident)? by $flags:ident) => {
        $crate::effect::effect!(@opens [$($dir)?] [$path] $crate::effect::OpenFlags::In($crate::effect::argument!($flags)))
    };
    (opens $path:ident $(below $dir:ident)? by [$how:ident]) => {
        $crate::effect::effect!(@opens [$($dir)?] [$path] $crate::effect::OpenFlags::Behind($crate::effect::argument!($how)))
    };
    (opens by $flags:ident) => { $crate::effect::effect!(@opens [] [] $crate::effect::OpenFlags::In($crate::effect::argument!($flags))) };
    (creates $path:ident) => { $crate::effect::effect!(@opens [] [$path] $crate::effect::OpenFlags::Creates) };
    (@opens [$($dir:ident)?] [$($path:ident)?] $flags:expr) => {
        $crate::effect::Effect::OpensFile($crate::effect::Opening {
            dir: $crate::effect::effect!(@maybe $($dir)?),
            path: $crate::effect::effect!(@maybe $($path)?),
            flags: $flags,
        })
    };
    (duplicates $fd:ident) => { $crate::effect::Effect::Duplicates($crate::effect::argument!($fd)) };
    (duplicates $fd:ident onto $onto:ident $(by $flags:ident)?) => {
        $crate::effect::Effect::Replaces($crate::effect::Replacement {
            from: $crate::effect::argument!($fd),
            onto: $crate::effect::argument!($onto),
            flags: $crate::effect::effect!(@maybe $($flags)?),
        })
    };
    (commands $fd:ident) => { $crate::effect::Effect::Commands($crate::effect::argument!($fd)) };
    (closes $fd:ident) => { $crate::effect::Effect::Closes($crate::effect::argument!($fd)) };
    (closes $first:ident to $last:ident by $flags:ident) => {
        $crate::effect::Effect::ClosesRange($crate::effect::argument!($first), $crate::effect::argument!($last), $crate::effect::argument!($flags))
    };
    (reads link $path:ident) => { $crate::effect::Effect::ReadsLink($crate::effect::argument!($path)) };
    (truncates $fd:ident) => { $crate::effect::Effect::Truncates($crate::effect::argument!($fd)) };
    (truncates named $path:ident) => { $crate::effect::Effect::TruncatesNamed($crate::effect::argument!($path)) };
    (allocates $fd:ident) => { $crate::effect::Effect::Allocates($crate::effect::argument!($fd)) };

    (maps) => { $crate::effect::Effect::Maps };
    (unmaps) => { $crate::effect::Effect::Unmaps };
    (protects) => { $crate::effect::Effect::Protects };
    (remaps) => { $crate::effect::Effect::Remaps };
    (advises) => { $crate::effect::Effect::Advises };
    (attaches) => { $crate::effect::Effect::Attaches };
    (detaches) => { $crate::effect::Effect::Detaches };
    (segments) => { $crate::effect::Effect::Segments };
    (breaks) => { $crate::effect::Effect::Breaks };
    (locks $(by $flags:ident)?) => { $crate::effect::Effect::Locks($crate::effect::effect!(@maybe $($flags)?)) };
    (unlocks) => { $crate::effect::Effect::Unlocks };
    (locks all) => { $crate::effect::Effect::LocksAll };
    (unlocks all) => { $crate::effect::Effect::UnlocksAll };

    (clones) => { $crate::effect::Effect::Clones };
    (forks) => { $crate::effect::Effect::Forks };
    (vforks) => { $crate::effect::Effect::Vforks };
    (execs) => { $crate::effect::Effect::Execs };
    (ends thread) => { $crate::effect::Effect::EndsThread };
    (ends process) => { $crate::effect::Effect::EndsProcess };
    (awaits child) => { $crate::effect::Effect::AwaitsChild };
    (unshares) => { $crate::effect::Effect::Unshares };
    (affinity) => { $crate::effect::Effect::Affinity };
    (yields) => { $crate::effect::Effect::Yields };
    (futex) => { $crate::effect::Effect::Futex };
    (family) => { $crate::effect::Effect::Family };
    (limits $resource:ident to $new:ident) => {
        $crate::effect::Effect::Limits($crate::effect::Limit {
            resource: $crate::effect::argument!($resource),
            new: $crate::effect::argument!($new),
        })
    };
    (sets exit word) => { $crate::effect::Effect::SetsExitWord };
    (sets robust list) => { $crate::effect::Effect::SetsRobustList };
    (tells robust list) => { $crate::effect::Effect::TellsRobustList };
    (segment base) => { $crate::effect::Effect::SegmentBase };
    (options) => { $crate::effect::Effect::Options };
    (filters) => { $crate::effect::Effect::Filters };
    (traces) => { $crate::effect::Effect::Traces };

    (signals process $signal:ident $(with $info:ident)?) => { $crate::effect::effect!(@signals Process $signal [$($info)?]) };
    (signals thread $signal:ident) => { $crate::effect::effect!(@signals Thread $signal []) };
    (signals thread of process $signal:ident $(with $info:ident)?) => { $crate::effect::effect!(@signals ThreadOf $signal [$($info)?]) };
    (signals descriptor $signal:ident with $info:ident) => { $crate::effect::effect!(@signals Descriptor $signal [$info]) };
    (@signals $to:ident $signal:ident [$($info:ident)?]) => {
        $crate::effect::Effect::Signals($crate::effect::Signal {
            to: $crate::effect::Receiver::$to,
            signal: $crate::effect::argument!($signal),
            info: $crate::effect::effect!(@maybe $($info)?),
        })
    };
    (sets action) => { $crate::effect::Effect::SetsAction };
    (sets mask) => { $crate::effect::Effect::SetsMask };
    (sets stack) => { $crate::effect::Effect::SetsStack };
    (returns) => { $crate::effect::Effect::Returns };
    (tells pending) => { $crate::effect::Effect::TellsPending };
    (pauses) => { $crate::effect::Effect::Pauses };
    (sleeps) => { $crate::effect::Effect::Sleeps };
    (makes timer) => { $crate::effect::Effect::MakesTimer };
    (sets timer $(of $fd:ident)?) => { $crate::effect::Effect::SetsTimer($crate::effect::effect!(@maybe $($fd)?)) };
    (tells timer) => { $crate::effect::Effect::TellsTimer };
    (deletes timer) => { $crate::effect::Effect::DeletesTimer };
    (sets interval timer) => { $crate::effect::Effect::SetsIntervalTimer };
    (tells interval timer) => { $crate::effect::Effect::TellsIntervalTimer };
    (tells $what:ident) => { $crate::effect::Effect::Tells($crate::effect::Told::$what) };
}

/// The position of an argument in `NAMES`.
macro_rules! argument {
    ($a:ident) => {
        $crate::syscalls::index(NAMES, stringify!($a))
    };
}

/// A time limit, see [`Timeout`].
macro_rules! timeout {
    (ms $a:ident) => {
        $crate::effect::Timeout::Ms($crate::effect::argument!($a))
    };
    (timeval $a:ident) => {
        $crate::effect::Timeout::Timeval($crate::effect::argument!($a))
    };
    (timespec $a:ident) => {
        $crate::effect::Timeout::Timespec($crate::effect::argument!($a))
    };
    (until $a:ident) => {
        $crate::effect::Timeout::Until($crate::effect::argument!($a))
    };
}

pub(crate) use {argument, effect, timeout};
