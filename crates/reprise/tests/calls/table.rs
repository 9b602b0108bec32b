//! What the table of system calls says that calls write, against what they do write: `record --test-writes` compares the two at each call.
//!
//! A guest walks the rows of the table with good buffers, short ones, and such that end in the middle of what is written; and the guests that
//! make system calls for a living are recorded in that mode, too.

use crate::common;

use common::{assert_same, check, Guest, Source, Workplace};
use reprise_abi::spec::{Arg, Mem, Print, Replay, Size, SubCall, Syscall};
use reprise_abi::syscalls::TABLE;

guests! { kernel_writes }

#[test]
fn table_rows() {
    // By itself it finds no rows, and says nothing.
    check("table_rows");
}

/// Calls that are not made with made-up arguments: what they do would be felt.
const LEFT_OUT: [&str; 4] = ["syslog", "keyctl", "setitimer", "quotactl_fd"];

/// Which argument's value a size depends on.
fn count_of(size: Size) -> Vec<u8> {
    match size {
        Size::Arg(i)
        | Size::ArgTimes(i, _)
        | Size::ArgPlus(i, _)
        | Size::Bits(i)
        | Size::Pages(i) => vec![i],
        Size::Product(i, j, _) => vec![i, j],
        _ => Vec::new(),
    }
}

fn sizes(mem: Mem) -> Vec<Size> {
    match mem {
        Mem::In(s) | Mem::OutAlways(s) | Mem::InOutAlways(s) => vec![s],
        Mem::Out { cap, used } | Mem::InOut { cap, used } => vec![cap, used],
        _ => Vec::new(),
    }
}

fn writes(mem: Mem) -> bool {
    matches!(
        mem,
        Mem::Out { .. }
            | Mem::InOut { .. }
            | Mem::OutAlways(_)
            | Mem::InOutAlways(_)
            | Mem::IovecOut(_)
            | Mem::MsghdrOut
            | Mem::MmsghdrOut(_)
    )
}

/// A row for the guest, `None` when the call writes nothing or what it does is not known.
fn row(call: &Syscall, mems: &[Mem], fixed: Option<(usize, u64)>, name: &str) -> Option<String> {
    if !mems.iter().any(|m| writes(*m)) || mems.contains(&Mem::Unknown) {
        return None;
    }
    let all: Vec<Size> = mems.iter().flat_map(|m| sizes(*m)).collect();
    let is_count = |i: u8| all.iter().any(|s| count_of(*s).contains(&i));
    let is_length = |i: u8| {
        mems.iter().enumerate().any(|(k, m)| {
            let deref =
                |s: &Size| matches!(s, Size::Deref32(j) | Size::Deref32Plus(j, _) if *j == i);
            k != i as usize && sizes(*m).iter().any(deref)
        })
    };
    let elements = |i: u8| {
        mems.iter().any(|m| {
            matches!(m, Mem::IovecOut(j) | Mem::IovecIn(j) | Mem::MmsghdrOut(j) | Mem::MmsghdrIn(j) if *j == i)
        })
    };
    let kind = |(i, arg): (usize, &Arg)| -> String {
        let n = i as u8;
        match mems[i] {
            _ if fixed.is_some_and(|(at, _)| at == i) => format!("={}", fixed.map_or(0, |f| f.1)),
            // Limits are asked for, not set.
            _ if arg.name == "new_limit" => "=0".into(),
            Mem::None if arg.print == Print::Fd => "f".into(),
            Mem::None if elements(n) => "=2".into(),
            Mem::None if is_count(n) => "n".into(),
            Mem::Path => "p".into(),
            _ if is_length(n) => "l".into(),
            Mem::In(_) | Mem::InOut { .. } | Mem::InOutAlways(_) => "r".into(),
            Mem::Out { .. } | Mem::OutAlways(_) => "w".into(),
            Mem::IovecOut(_) => "i".into(),
            Mem::MsghdrOut => "m".into(),
            Mem::MmsghdrOut(_) => "b".into(),
            _ => "=0".into(),
        }
    };
    let kinds: Vec<String> = call.args.iter().enumerate().map(kind).collect();
    Some(format!("{} {name} {}\n", call.nr, kinds.join(" ")))
}

/// The entries of a sub-table, and which argument says which.
fn commands(call: &Syscall) -> Option<(usize, usize, &'static [SubCall])> {
    call.args.iter().enumerate().find_map(|(at, arg)| {
        let (by, list): (u8, &'static [SubCall]) = match arg.mem {
            Mem::Ioctl(by) => (by, reprise_abi::ioctl::ENTRIES),
            Mem::Fcntl(by) => (by, reprise_abi::fcntl::ENTRIES),
            Mem::Command(by, list) => (by, list),
            _ => return None,
        };
        Some((at, by as usize, list))
    })
}

/// All rows that can be walked.
fn rows() -> String {
    let mut text = String::new();
    let calls = TABLE
        .iter()
        .flatten()
        .filter(|c| c.replay == Replay::Emulate);
    for call in calls.filter(|c| !LEFT_OUT.contains(&c.name)) {
        let mems: Vec<Mem> = call.args.iter().map(|a| a.mem).collect();
        match commands(call) {
            None => text.extend(row(call, &mems, None, call.name)),
            Some((at, by, list)) => {
                for sub in list.iter().filter(|s| s.replay == Replay::Emulate) {
                    let mut mems = mems.clone();
                    mems[at] = sub.mem;
                    let name = format!("{}:{}", call.name, sub.name);
                    text.extend(row(call, &mems, Some((by, sub.nr)), &name));
                }
            }
        }
    }
    text
}

/// Commands that go through the whole machine's objects of System V by their numbers: what they say depends on what other programs have at the moment.
const OF_THE_MACHINE: [&str; 3] = ["msgctl:MSG_STAT", "semctl:SEM_STAT", "shmctl:SHM_STAT"];

/// What the guest says of errors, natively and in recordings alike.
fn errors(text: &str) -> Vec<&str> {
    let depends = |l: &str| OF_THE_MACHINE.iter().any(|name| l.starts_with(name));
    text.lines()
        .filter(|l| !l.contains(" = ") && !depends(l))
        .collect()
}

#[test]
fn every_row_writes_what_the_table_says() {
    let rows = rows();
    let count = rows.lines().count();
    assert!(count > 120, "only {count} rows:\n{rows}");
    let guest = Guest::new("table_rows").stdin(rows.as_str());
    let place = Workplace::new();
    let native = guest.native(&place);
    assert!(native.status.success(), "{}", native.describe());
    for flags in [&["--test-writes"][..], &[], &["--engine", "order"]] {
        let recording = place.record_with(&guest, flags);
        assert!(
            recording.run.status.success(),
            "{flags:?}: {}",
            recording.run.describe()
        );
        let (native, recorded) = (native.text(), recording.run.text());
        for (n, r) in errors(&native).iter().zip(errors(&recorded)) {
            assert_eq!(*n, r, "{flags:?}");
        }
        assert_eq!(
            native.lines().count(),
            recorded.lines().count(),
            "{flags:?}"
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

/// Guests that make every kind of system call, with their errors.
const OF_CALLS: [&str; 24] = [
    "vectors",
    "bad_descriptors",
    "poll_states",
    "huge_counts",
    "wide_select",
    "pointers_of_waits",
    "pointers_of_files",
    "pointers_of_sockets",
    "bad_pointers",
    "message_batches",
    "peeking",
    "unix_datagrams",
    "socket_options",
    "interface_lists",
    "directories",
    "names",
    "extended_attributes",
    "file_handles",
    "file_ioctls",
    "signalfds",
    "ipc_tables",
    "limits",
    "time_values",
    "kernel_writes",
];

#[test]
fn guests_write_what_the_table_says() {
    for name in OF_CALLS {
        for guest in Source::read(name).guests() {
            let place = Workplace::new();
            let recording = place.record_with(&guest, &["--test-writes"]);
            let fits = guest.outcome.fits(recording.run.status);
            assert!(fits, "{}", recording.run.describe());
        }
    }
}

/// The test can fail: of one call the table is made to know nothing.
#[test]
fn a_write_that_nobody_told_of_is_found() {
    for call in ["waitid", "capget", "getdents64", "recvmsg"] {
        let place = Workplace::new();
        let guest = Guest::new("kernel_writes");
        let recording = place.record_with(&guest, &["--test-writes", "--forget-syscall", call]);
        let said = recording.run.said();
        assert_eq!(
            recording.run.status.code(),
            Some(125),
            "{}",
            recording.run.describe()
        );
        let wanted = format!("--test-writes: {call}(");
        assert!(said.contains(&wanted), "{}", recording.run.describe());
    }
}
