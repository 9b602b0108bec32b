//! What a copy that runs an epoch again (DoublePlay 5.2) has done that the program did not, as the session tells it
//! ([`Session::epoch_difference`](crate::session::Session::epoch_difference)).

/// A page differs.
pub const MEMORY: u64 = 1;
/// It has come to no end in time.
pub const LATE: u64 = 2;
/// It was ended.
pub const ENDED: u64 = 3;
/// Registers that hold vectors differ.
pub const VECTORS: u64 = 4;
/// General registers of the thread in this slot.
pub const REGISTERS: u64 = 5;
/// It has left the way of the log: from here on, by [what](Why).
pub const OTHER_WAY: u64 = 16;

/// What kept a copy from coming to the end of its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Why {
    /// It made another call, or with other arguments, or came to no call.
    Call = 1,
    /// It made another operation of synchronisation.
    Operation = 2,
    /// All its threads wait for each other.
    Stuck = 3,
    /// A thread came to another place, or with other registers.
    Place = 4,
    /// The runtime answered a call differently.
    Result = 5,
    /// A fault of its own.
    Fault = 6,
    /// A process is made or ends, or a thread that the copy can't make.
    Life = 7,
    /// A call whose results aren't in the log.
    Input = 8,
    /// A signal.
    Signal = 9,
    /// An event that the copy can't make.
    Event = 10,
    /// More than there is room for was to be written.
    Long = 11,
    /// What is run by slices comes to something else than they say.
    Slice = 12,
    /// Others may write what the program has mapped.
    Shared = 13,
    /// The program can't go to where the copy is.
    NotTakenOver = 14,
    /// The program mustn't look into its own memory from outside, or finds no /proc.
    Unreadable = 15,
}

impl Why {
    /// Is that nothing wrong, but more than a copy can do?
    pub fn is_left_out(self) -> bool {
        matches!(
            self,
            Why::Life | Why::Input | Why::Signal | Why::Event | Why::Long
        )
    }

    /// For people: what the copy left the log by.
    pub fn name(self) -> &'static str {
        match self {
            Why::Call => "another call",
            Why::Operation => "another operation of synchronisation",
            Why::Stuck => "threads that all wait",
            Why::Place => "another place",
            Why::Result => "another result of a call",
            Why::Fault => "a fault",
            Why::Life => "a process that begins or ends",
            Why::Input => "a call whose results are not in the log",
            Why::Signal => "a signal",
            Why::Event => "an event that a copy can't make",
            Why::Long => "slices for which there is no room",
            Why::Slice => "an event that isn't the next of the slices",
            Why::Shared => "memory that others may write",
            Why::NotTakenOver => "what the program can't take over",
            Why::Unreadable => "a process that may not read its own /proc",
        }
    }

    /// The reason that has this number.
    pub fn from_u64(n: u64) -> Option<Why> {
        ALL.into_iter().find(|why| *why as u64 == n)
    }
}

/// One more than the highest number of a reason for which epochs are [left out](Why::is_left_out).
pub const REASONS: usize = 13;

/// All reasons.
const ALL: [Why; 15] = [
    Why::Call,
    Why::Operation,
    Why::Stuck,
    Why::Place,
    Why::Result,
    Why::Fault,
    Why::Life,
    Why::Input,
    Why::Signal,
    Why::Event,
    Why::Long,
    Why::Slice,
    Why::Shared,
    Why::NotTakenOver,
    Why::Unreadable,
];
