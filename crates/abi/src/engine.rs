//! The engines, in one table: what each is called, by which numbers the session and the runtime know it, and what it can. Whoever wants to know
//! something of an engine asks for what it can, not for who it is.

/// Numbers by which the runtime knows an engine in one of its roles.
pub mod role {
    /// Nothing is ordered or logged.
    pub const NONE: u32 = 0;
    /// `serial`, recording.
    pub const SERIAL_RECORD: u32 = 1;
    /// `serial`, replaying.
    pub const SERIAL_REPLAY: u32 = 2;
    /// `order`, recording.
    pub const ORDER_RECORD: u32 = 3;
    /// `order`, replaying.
    pub const ORDER_REPLAY: u32 = 4;
    /// `det`, whether it logs, follows a log, or neither.
    pub const DET: u32 = 5;
    /// `sketch`, in images that are built with the feature of that name.
    pub const SKETCH: u32 = 6;
    /// `serial`, in a copy of a program that `order` records: it runs an epoch again, by that one's log.
    pub const FOLLOW: u32 = 7;
    /// `goroutines`: nobody's in the runtime, which does not take part.
    pub const GOROUTINES: u32 = 8;
    /// How many there are.
    pub const COUNT: usize = 9;
}

/// What an engine can: bits of [`Engine::can`].
pub mod can {
    /// Its traces can be replayed.
    pub const REPLAY: u32 = 1 << 0;
    /// Threads run on all processors, and the operations by which they synchronise have an order.
    pub const ORDER_SYNCHRONISATION: u32 = 1 << 1;
    /// What is recorded is one thread of the session at a time, in slices.
    pub const RUN_ONE_AT_A_TIME: u32 = 1 << 2;
    /// Threads have private views of memory, and are processes to the kernel.
    pub const SEPARATE_MEMORY: u32 = 1 << 3;
    /// The same program with the same inputs runs the same way always.
    pub const REPEAT: u32 = 1 << 4;
    /// A program of which one thread runs at a time stays on one processor.
    pub const PIN: u32 = 1 << 5;
    /// A debugger can be led through its recordings.
    pub const BE_DEBUGGED: u32 = 1 << 6;
    /// Only the last stretch of a recording can be kept (`record --keep`).
    pub const BE_KEPT: u32 = 1 << 7;
    /// It can begin with a program that runs already (`attach`).
    pub const ATTACH: u32 = 1 << 8;
    /// Functions that race can be learned, so that what their loads find is recorded (`replay --learn`).
    pub const LEARN: u32 = 1 << 9;
    /// Its recordings can be replayed by one thread at a time, in a total order.
    pub const TOTAL_ORDER: u32 = 1 << 10;
    /// Data races can be looked for in its recordings.
    pub const FIND_RACES: u32 = 1 << 11;
    /// Its recordings can be replayed with a rebuilt program.
    pub const FOLLOW_REBUILT: u32 = 1 << 12;
    /// Its recordings say of each byte that a process wrote whether it had written it when it ended.
    pub const COUNT_OUTPUT: u32 = 1 << 13;
    /// Threads run on all processors, in epochs; what is recorded is what copies do that run each epoch again.
    pub const RUN_IN_EPOCHS: u32 = 1 << 14;
}

/// How the events of different threads are ordered in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOrder {
    /// All in one sequence: who ran, and until where.
    Slices,
    /// A sequence a thread; stamps and objects' operations order them.
    Stamps,
    /// A sequence a thread, of what it was told: the engine orders all else in the same way again.
    Told,
    /// One sequence, in which each operation of goroutines on each other has its place.
    Goroutines,
    /// There is no trace.
    Nothing,
}

/// How many event rings a recorded session has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rings {
    /// One, which the holder of the baton uses.
    One,
    /// One a thread.
    Each,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// As the command line and the manifest call it.
    pub name: &'static str,
    /// [`Session::engine`](crate::session::Session::engine).
    pub number: u32,
    /// The runtime's number while recording, ...
    pub recorder: u32,
    /// ... and while replaying.
    pub replayer: u32,
    /// How its traces are ordered.
    pub order: TraceOrder,
    /// Its rings.
    pub rings: Rings,
    /// What it can: bits of [`can`].
    pub can: u32,
    /// Users are not told of it, and only an image built for its test may have it.
    pub is_hidden: bool,
    /// What it does, for the command line and documents.
    pub about: &'static str,
}

/// `none`.
pub const NONE: Engine = Engine {
    name: "none",
    number: 1,
    recorder: role::NONE,
    replayer: role::NONE,
    order: TraceOrder::Nothing,
    rings: Rings::One,
    can: 0,
    is_hidden: false,
    about: "Capture everything, log nothing, order nothing: no trace is made",
};

/// `serial`.
pub const SERIAL: Engine = Engine {
    name: "serial",
    number: 2,
    recorder: role::SERIAL_RECORD,
    replayer: role::SERIAL_REPLAY,
    order: TraceOrder::Slices,
    rings: Rings::One,
    can: can::REPLAY
        | can::RUN_ONE_AT_A_TIME
        | can::PIN
        | can::BE_DEBUGGED
        | can::BE_KEPT
        | can::ATTACH
        | can::COUNT_OUTPUT,
    is_hidden: false,
    about: "One thread at a time: exact, data races included",
};

/// `uniparallel`: what it records is slices, as `serial` writes them, and a replay is one of `serial`.
pub const UNIPARALLEL: Engine = Engine {
    name: "uniparallel",
    number: 7,
    can: can::REPLAY
        | can::RUN_ONE_AT_A_TIME
        | can::PIN
        | can::BE_DEBUGGED
        | can::COUNT_OUTPUT
        | can::RUN_IN_EPOCHS,
    about: "In the making: all threads at once, on all processors, and exact, data races included; one process, the others as with `serial`",
    ..SERIAL
};

/// `order`.
pub const ORDER: Engine = Engine {
    name: "order",
    number: 3,
    recorder: role::ORDER_RECORD,
    replayer: role::ORDER_REPLAY,
    order: TraceOrder::Stamps,
    rings: Rings::Each,
    can: can::REPLAY
        | can::ORDER_SYNCHRONISATION
        | can::BE_DEBUGGED
        | can::BE_KEPT
        | can::LEARN
        | can::TOTAL_ORDER
        | can::FIND_RACES
        | can::FOLLOW_REBUILT,
    is_hidden: false,
    about: "In the making: all threads and processes at once, on all processors; with glibc; exact up to the first data race",
};

/// `det`.
pub const DET: Engine = Engine {
    name: "det",
    number: 4,
    recorder: role::DET,
    replayer: role::DET,
    order: TraceOrder::Told,
    rings: Rings::Each,
    can: can::REPLAY | can::SEPARATE_MEMORY | can::REPEAT,
    is_hidden: false,
    about: "In the making: all threads at once, with glibc; only inputs are recorded, and a replay is the same run once more (see `run`); one process",
};

/// `goroutines`.
pub const GOROUTINES: Engine = Engine {
    name: "goroutines",
    number: 6,
    recorder: role::GOROUTINES,
    replayer: role::GOROUTINES,
    order: TraceOrder::Goroutines,
    rings: Rings::One,
    can: can::REPLAY,
    is_hidden: false,
    about: "In the making: Go programs built by `reprise go build`, on all processors, by what their goroutines do; exact up to the first data race",
};

/// `sketch`.
pub const SKETCH: Engine = Engine {
    name: "sketch",
    number: 5,
    recorder: role::SKETCH,
    replayer: role::SKETCH,
    order: TraceOrder::Nothing,
    rings: Rings::One,
    can: can::SEPARATE_MEMORY,
    is_hidden: true,
    about: "Private views of memory, committed in whatever order threads come to gates; no trace is made",
};

/// All of them.
pub const ENGINES: [&Engine; 7] = [
    &NONE,
    &SERIAL,
    &UNIPARALLEL,
    &ORDER,
    &DET,
    &GOROUTINES,
    &SKETCH,
];

impl Engine {
    /// Can it do all of this (bits of [`can`])?
    pub const fn can(&self, what: u32) -> bool {
        self.can & what == what
    }

    /// The first of the table that can all of this.
    pub fn that_can(what: u32) -> &'static Engine {
        let mut all = ENGINES.into_iter();
        all.find(|e| e.can(what)).unwrap_or(&NONE)
    }

    /// The one with this number in a session.
    pub fn of(number: u32) -> Option<&'static Engine> {
        ENGINES.into_iter().find(|e| e.number == number)
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Engine> {
        ENGINES.into_iter().find(|e| e.name == name)
    }
}

/// The roles of those engines that can do this, as bits.
pub const fn roles_that_can(what: u32) -> u32 {
    let (mut roles, mut i) = (0, 0);
    while i < ENGINES.len() {
        if ENGINES[i].can(what) {
            roles |= 1 << ENGINES[i].recorder | 1 << ENGINES[i].replayer;
        }
        i += 1;
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_roles_are_unlike() {
        for (i, a) in ENGINES.iter().enumerate() {
            assert_eq!(Engine::of(a.number).map(|e| e.name), Some(a.name));
            assert_eq!(Engine::named(a.name).map(|e| e.number), Some(a.number));
            for b in &ENGINES[i + 1..] {
                assert_ne!(a.name, b.name);
                assert_ne!(a.number, b.number);
                // What one records may be what another one replays.
                if a.can(can::RUN_IN_EPOCHS) || b.can(can::RUN_IN_EPOCHS) {
                    continue;
                }
                for role in [a.recorder, a.replayer] {
                    assert!(role != b.recorder && role != b.replayer);
                }
            }
        }
    }

    #[test]
    fn roles_are_found_by_what_they_can() {
        let order = 1 << role::ORDER_RECORD | 1 << role::ORDER_REPLAY;
        assert_eq!(roles_that_can(can::ORDER_SYNCHRONISATION), order);
        let separate = 1 << role::DET | 1 << role::SKETCH;
        assert_eq!(roles_that_can(can::SEPARATE_MEMORY), separate);
        assert_eq!(Engine::that_can(can::ATTACH), &SERIAL);
        assert_eq!(Engine::that_can(can::REPEAT), &DET);
        assert_eq!(roles_that_can(can::REPLAY) & 1 << role::NONE, 0);
    }
}
