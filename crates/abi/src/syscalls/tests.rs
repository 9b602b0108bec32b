//! What must hold for every line of the table.

use super::*;
use crate::effect::Opened;
use crate::names::errno::ENOSYS;
use crate::spec::{Print, Size};
use std::string::String;
use std::vec::Vec;

fn calls() -> impl Iterator<Item = &'static Syscall> {
    TABLE.iter().flatten().copied()
}

/// The sub-tables that hang on arguments of the table.
fn lists() -> Vec<(&'static str, usize, &'static [SubCall])> {
    let mut lists = std::vec![
        ("ioctl", 3, crate::ioctl::ENTRIES),
        ("fcntl", 3, crate::fcntl::ENTRIES),
        ("prctl", 5, crate::prctl::ENTRIES),
    ];
    for call in calls() {
        for arg in call.args {
            if let Mem::Command(_, list) = arg.mem {
                lists.push((call.name, call.args.len(), list));
            }
        }
    }
    lists
}

/// The positions of arguments that a size refers to.
fn referred(size: Size) -> Vec<u8> {
    match size {
        Size::Bytes(_) | Size::Result | Size::ResultTimes(_) | Size::ResultPlus(_) => Vec::new(),
        Size::Arg(i)
        | Size::ArgTimes(i, _)
        | Size::ArgPlus(i, _)
        | Size::Bits(i)
        | Size::Pages(i) => std::vec![i],
        Size::Deref32(i) | Size::Deref32Plus(i, _) | Size::Chosen { at: i, .. } => std::vec![i],
        Size::Product(i, j, _) => std::vec![i, j],
    }
}

fn referred_by(mem: Mem) -> Vec<u8> {
    match mem {
        Mem::In(size) | Mem::OutAlways(size) | Mem::InOutAlways(size) => referred(size),
        Mem::Out { cap, used } | Mem::InOut { cap, used } => {
            [referred(cap), referred(used)].concat()
        }
        Mem::IovecIn(i) | Mem::IovecOut(i) | Mem::MmsghdrIn(i) | Mem::MmsghdrOut(i) => std::vec![i],
        Mem::Ioctl(i) | Mem::Fcntl(i) | Mem::Command(i, _) => std::vec![i],
        _ => Vec::new(),
    }
}

fn capacity(mem: Mem) -> Option<Size> {
    match mem {
        Mem::In(cap)
        | Mem::Out { cap, .. }
        | Mem::InOut { cap, .. }
        | Mem::OutAlways(cap)
        | Mem::InOutAlways(cap) => Some(cap),
        _ => None,
    }
}

#[test]
fn every_call_is_found_by_its_number_and_by_its_name() {
    for nr in (0..=336).chain(424..=470) {
        let call = lookup(nr).unwrap_or_else(|| panic!("{nr} is missing"));
        assert_eq!(call.nr as u64, nr);
        assert_eq!(by_name(call.name), Some(call));
    }
    assert_eq!(calls().count(), 337 + 47);
    assert_eq!(lookup(337), None);
    assert_eq!(lookup(423), None);
    assert_eq!(lookup(LIMIT as u64), None);
    assert_eq!(lookup(u64::MAX), None);
    assert_eq!(lookup(1 << 32), None);
    assert_eq!(by_name("no_such_call"), None);
}

#[test]
fn constants_are_the_names_in_capitals() {
    for (source, family) in [
        (include_str!("descriptors.rs"), descriptors::CALLS),
        (include_str!("files.rs"), files::CALLS),
        (include_str!("ipc.rs"), ipc::CALLS),
        (include_str!("memory.rs"), memory::CALLS),
        (include_str!("network.rs"), network::CALLS),
        (include_str!("process.rs"), process::CALLS),
        (include_str!("signals.rs"), signals::CALLS),
        (include_str!("system.rs"), system::CALLS),
        (include_str!("time.rs"), time::CALLS),
    ] {
        for call in family {
            let line = std::format!(
                "    {} {} {}(",
                call.nr,
                call.name.to_uppercase(),
                call.name
            );
            assert!(
                source.contains(&line),
                "the line of {} does not begin with its constant",
                call.name
            );
        }
    }
    assert_eq!((nr::READ, nr::OPENAT, nr::FILE_SETATTR), (0, 257, 469));
}

/// The kernel headers of this machine may be older than the table, never newer calls under other names.
#[test]
fn numbers_and_names_are_those_of_the_kernel_headers() {
    let paths = [
        "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "/usr/include/asm/unistd_64.h",
    ];
    let Some(header) = paths
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
    else {
        panic!("no kernel headers here: scripts/setup-tests.sh installs them");
    };
    let mut compared = 0;
    for line in header.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(nr)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Some(name), Ok(nr)) = (name.strip_prefix("__NR_"), nr.parse::<u64>()) else {
            continue;
        };
        // Calls younger than the table are recorded by the write-tracking fallback.
        if nr >= LIMIT as u64 {
            continue;
        }
        assert_eq!(lookup(nr).map(|call| call.name), Some(name), "number {nr}");
        compared += 1;
    }
    assert!(
        compared > 300,
        "only {compared} numbers in the kernel headers"
    );
}

#[test]
fn arguments_have_names_of_their_own_and_refer_to_each_other() {
    for call in calls() {
        assert!(call.args.len() <= 6, "{}", call.name);
        for (i, arg) in call.args.iter().enumerate() {
            assert!(
                call.args[..i].iter().all(|other| other.name != arg.name),
                "{}",
                call.name
            );
            for j in referred_by(arg.mem) {
                let itself = capacity(arg.mem).is_some_and(|size| points_to_itself(size, i));
                assert!((j as usize) < call.args.len(), "{}", call.name);
                assert!(
                    j as usize != i || itself,
                    "{}: {} refers to itself",
                    call.name,
                    arg.name
                );
            }
        }
        if let Blocking::Fd(i) = call.blocking {
            assert_eq!(
                call.args[i as usize].print,
                Print::Fd,
                "{} waits on what is no descriptor",
                call.name
            );
        }
    }
}

/// A structure whose first word is its own size.
fn points_to_itself(size: Size, i: usize) -> bool {
    matches!(size, Size::Deref32(j) | Size::Deref32Plus(j, _) if j as usize == i)
}

#[test]
fn whoever_returns_a_descriptor_says_what_is_behind_it() {
    for call in calls().filter(|c| !matches!(c.replay, Replay::Refuse(_))) {
        let told_in_memory = matches!(
            call.effect,
            Effect::Opens(Opened::Pipe(_) | Opened::SocketPair(_))
        );
        let opens = matches!(
            call.effect,
            Effect::Opens(_) | Effect::OpensFile(_) | Effect::Duplicates(_) | Effect::Replaces(_)
        );
        assert_eq!(
            call.ret == Ret::Fd || told_in_memory,
            opens,
            "{}: {}",
            call.name,
            call.does
        );
    }
}

#[test]
fn who_reads_and_writes_has_memory_for_it() {
    for call in calls() {
        let has = |wanted: fn(&Mem) -> bool| call.args.iter().any(|a| wanted(&a.mem));
        match call.effect {
            Effect::Reads(..) | Effect::Receives(_) | Effect::Takes(_) => assert!(
                has(|m| matches!(
                    m,
                    Mem::Out { .. } | Mem::IovecOut(_) | Mem::MsghdrOut | Mem::MmsghdrOut(_)
                )),
                "{}",
                call.name
            ),
            Effect::Writes(..) | Effect::Sends(_) | Effect::Puts(_) => assert!(
                has(|m| matches!(
                    m,
                    Mem::In(_) | Mem::IovecIn(_) | Mem::MsghdrIn | Mem::MmsghdrIn(_)
                )),
                "{}",
                call.name
            ),
            Effect::Moves(m) => {
                assert_eq!(call.args[m.from as usize].print, Print::Fd, "{}", call.name);
                assert_eq!(call.args[m.to as usize].print, Print::Fd, "{}", call.name);
            }
            _ => {}
        }
    }
}

#[test]
fn who_has_a_time_limit_or_a_mask_waits() {
    for call in calls() {
        if call.timeout != Timeout::None || call.mask.is_some() {
            assert!(
                matches!(call.blocking, Blocking::Always | Blocking::Fd(_)),
                "{}",
                call.name
            );
        }
        if let Effect::Polls | Effect::PollsSet(_) = call.effect {
            assert_ne!(call.timeout, Timeout::None, "{}", call.name);
        }
        if let Effect::Signals(s) = call.effect {
            let arg = &call.args[s.signal as usize];
            assert_eq!(arg.print, Print::Signal, "{}", call.name);
            assert!(s.info.is_none_or(|i| call.args[i as usize].name == "info"));
        }
    }
}

#[test]
fn a_refused_call_never_waits_and_a_call_that_waits_says_what_signals_do() {
    let rows = calls().map(|c| (c.name, c.replay, c.blocking, c.restart));
    let sub_rows = lists().into_iter().flat_map(|(_, _, list)| {
        list.iter()
            .map(|s| (s.name, s.replay, s.blocking, s.restart))
    });
    for (name, replay, blocking, restart) in rows.chain(sub_rows) {
        if let Replay::Refuse(errno) = replay {
            assert!(
                errno > 0 && crate::names::errno_name(errno).is_some(),
                "{name}"
            );
            assert_eq!(blocking, Blocking::Never, "{name}");
        } else if matches!(blocking, Blocking::Always | Blocking::Fd(_)) {
            let wakes = restart != Restart::No || name == "vfork";
            assert!(wakes, "{name} waits, so a signal can interrupt it");
        } else if blocking == Blocking::Never {
            assert_eq!(
                restart,
                Restart::No,
                "{name} never waits, so no signal interrupts it"
            );
        }
    }
}

#[test]
fn sub_tables_refer_to_arguments_of_their_call() {
    for (name, args, list) in lists() {
        for (i, entry) in list.iter().enumerate() {
            assert!(
                list[..i].iter().all(|other| other.nr != entry.nr),
                "{name}: {} twice",
                entry.name
            );
            assert!(
                referred_by(entry.mem).iter().all(|&j| (j as usize) < args),
                "{name}: {}",
                entry.name
            );
            let nested = matches!(
                entry.mem,
                Mem::Ioctl(_) | Mem::Fcntl(_) | Mem::Prctl | Mem::Command(..)
            );
            assert!(
                !nested,
                "{name}: {} leads to a further sub-table",
                entry.name
            );
        }
    }
    for entry in crate::ioctl::ENTRIES {
        assert_eq!(crate::ioctl::lookup(entry.nr), Some(entry));
        // The kernel sees 32 bits; programs that pass an int sign-extend them.
        assert_eq!(
            crate::ioctl::lookup(entry.nr as u32 as i32 as u64),
            Some(entry)
        );
    }
    for entry in crate::fcntl::ENTRIES {
        assert_eq!(crate::fcntl::lookup(entry.nr), Some(entry));
    }
    for entry in crate::prctl::ENTRIES {
        assert_eq!(crate::prctl::lookup(entry.nr), Some(entry));
    }
    for entry in crate::prctl::ARCH_ENTRIES {
        assert_eq!(crate::prctl::arch_lookup(entry.nr), Some(entry));
    }
    assert_eq!(crate::ioctl::lookup(0xdead_beef), None);
}

/// Where a number says how large its structure is, the table must not say less (nor, but for known oddities, more).
#[test]
fn sizes_of_ioctls_agree_with_their_numbers() {
    // Their numbers name another type than what the kernel reads and writes.
    let odd = [
        "FS_IOC_GETFLAGS",
        "FS_IOC_SETFLAGS",
        "FS_IOC_GETVERSION",
        "FS_IOC_SETVERSION",
        "BLKBSZGET",
        "BLKBSZSET",
        "TUNSETIFF",
        "TUNGETIFF",
        "TUNSETQUEUE",
    ];
    for entry in crate::ioctl::ENTRIES {
        let encoded = crate::ioctl::decode(entry.nr);
        if encoded.size == 0 || odd.contains(&entry.name) {
            continue;
        }
        let said = match entry.mem {
            Mem::In(Size::Bytes(n)) => n,
            Mem::Out {
                cap: Size::Bytes(n),
                ..
            }
            | Mem::InOut {
                cap: Size::Bytes(n),
                ..
            } => n,
            _ => continue,
        };
        assert_eq!(said, encoded.size as u32, "{}", entry.name);
    }
}

#[test]
fn well_known_lines_say_what_the_man_pages_say() {
    let read = lookup(nr::READ).expect("read is there");
    assert_eq!(
        read.args[1].mem,
        Mem::Out {
            cap: Size::Arg(2),
            used: Size::Result
        }
    );
    assert_eq!(
        (read.replay, read.blocking, read.restart),
        (Replay::Emulate, Blocking::Fd(0), Restart::Handler)
    );
    let getsockopt = lookup(nr::GETSOCKOPT).expect("getsockopt is there");
    assert_eq!(
        getsockopt.args[3].mem,
        Mem::InOut {
            cap: Size::Deref32(4),
            used: Size::Deref32(4)
        }
    );
    let nanosleep = lookup(nr::NANOSLEEP).expect("nanosleep is there");
    assert_eq!(nanosleep.args[1].mem, Mem::OutAlways(Size::Bytes(16)));
    assert_eq!(nanosleep.restart, Restart::Never);
    let rseq = lookup(nr::RSEQ).expect("rseq is there");
    assert_eq!(rseq.replay, Replay::Refuse(ENOSYS));
}

#[test]
fn sub_tables_decide_when_they_know_the_command() {
    let ioctl = lookup(nr::IOCTL).expect("ioctl is there");
    let winsize = resolve(ioctl, &[1, crate::ioctl::TIOCGWINSZ, 0x1000, 0, 0, 0]);
    assert_eq!(winsize.sub.map(|sub| sub.name), Some("TIOCGWINSZ"));
    assert_eq!(
        (winsize.blocking, winsize.unknown),
        (Blocking::Rarely, false)
    );
    let made_up = [1, 0x1234_5678, 0x1000, 0, 0, 0];
    assert!(resolve(ioctl, &made_up).unknown);
    assert_eq!(mem(&ioctl.args[2], &made_up), Mem::Unknown);
    let perf = resolve(ioctl, &[1, crate::ioctl::PERF_EVENT_IOC_ENABLE, 0, 0, 0, 0]);
    assert_eq!(perf.replay, Replay::Refuse(25));

    let fcntl = lookup(nr::FCNTL).expect("fcntl is there");
    assert_eq!(
        resolve(fcntl, &[1, crate::fcntl::F_SETLKW, 0x1000, 0, 0, 0]).blocking,
        Blocking::Always
    );
    assert_eq!(
        resolve(fcntl, &[1, crate::fcntl::F_DUPFD, 0, 0, 0, 0]).ret,
        Ret::Fd
    );

    let shmctl = lookup(nr::SHMCTL).expect("shmctl is there");
    assert_eq!(
        mem(&shmctl.args[2], &[1, 2, 0x1000, 0, 0, 0]),
        Mem::Out {
            cap: Size::Bytes(112),
            used: Size::Bytes(112)
        }
    );

    let prctl = lookup(nr::PRCTL).expect("prctl is there");
    assert_eq!(
        resolve(prctl, &[crate::prctl::PR_SET_MM, 0, 0, 0, 0, 0]).replay,
        Replay::Refuse(1)
    );
    assert_eq!(
        resolve(prctl, &[crate::prctl::PR_SET_TSC, 1, 0, 0, 0, 0]).replay,
        Replay::Special
    );
    assert_eq!(
        resolve(prctl, &[crate::prctl::PR_SET_NAME, 0x1000, 0, 0, 0, 0]).replay,
        Replay::Emulate
    );
    let unheard_of = resolve(prctl, &[12345, 0, 0, 0, 0, 0]);
    assert_eq!(
        (unheard_of.replay, unheard_of.unknown),
        (Replay::Emulate, true)
    );

    let arch_prctl = lookup(nr::ARCH_PRCTL).expect("arch_prctl is there");
    assert_eq!(
        resolve(arch_prctl, &[0x1002, 0x1000, 0, 0, 0, 0]).replay,
        Replay::Special
    );

    let setsockopt = lookup(nr::SETSOCKOPT).expect("setsockopt is there");
    assert_eq!(
        resolve(setsockopt, &[3, 263, 5, 0x1000, 16, 0]).replay,
        Replay::Refuse(92)
    );
    assert_eq!(
        resolve(setsockopt, &[3, 6, 1, 0x1000, 4, 0]).replay,
        Replay::Emulate
    );
}

#[test]
fn sizes_are_computed_without_overflow() {
    let huge = i64::MAX as u64;
    let args = [3, 65, huge, 0x1000, 0, 4097];
    let bytes = |size: Size, result| {
        size.bytes(&args, result, |at| {
            if at == 0x1000 {
                7
            } else {
                panic!("read at {at}")
            }
        })
    };
    assert_eq!(bytes(Size::Bytes(16), -4), 16);
    assert_eq!(bytes(Size::Result, -4), 0);
    assert_eq!(bytes(Size::Result, 9), 9);
    assert_eq!(bytes(Size::ResultTimes(12), 2), 24);
    assert_eq!(bytes(Size::ResultPlus(8), 2), 10);
    assert_eq!(bytes(Size::Arg(1), 0), 65);
    assert_eq!(bytes(Size::ArgTimes(2, 8), 0), u64::MAX);
    assert_eq!(bytes(Size::ArgPlus(2, 8), 0), huge + 8);
    assert_eq!(bytes(Size::Bits(1), 0), 16);
    assert_eq!(bytes(Size::Bits(2), 0), huge.div_ceil(64) * 8);
    assert_eq!(bytes(Size::Pages(5), 0), 2);
    assert_eq!(bytes(Size::Product(0, 1, 4), 0), 780);
    assert_eq!(bytes(Size::Deref32(3), 0), 7);
    assert_eq!(bytes(Size::Deref32Plus(3, 8), 0), 15);
    assert_eq!(
        bytes(Size::Deref32(4), 0),
        0,
        "a null pointer stands for nothing"
    );
    assert_eq!(bytes(Size::Deref32Plus(4, 8), 0), 0);
    let negative = [-1i64 as u64; 6];
    assert_eq!(
        Size::ArgTimes(0, 12).bytes(&negative, 0, |_| 0),
        0,
        "the kernel takes no negative length"
    );
}

#[test]
fn lists_of_values_name_each_value_once() {
    let mut seen = Vec::new();
    for call in calls() {
        for arg in call.args {
            if let Print::Enum(list) = arg.print {
                for (i, &(value, name)) in list.iter().enumerate() {
                    assert!(
                        list[..i].iter().all(|&(other, _)| other != value),
                        "{}: {name}",
                        call.name
                    );
                }
                seen.push(String::from(arg.name));
            }
        }
    }
    assert!(seen.len() > 30);
    assert_eq!(flag_name(flags::WHENCE, 2), Some("SEEK_END"));
    assert_eq!(flag_name(flags::WHENCE, 9), None);
}

#[test]
fn bits_that_the_kernel_does_not_look_at_do_not_count() {
    let junk = 0xdead_beef_0000_0000;
    let args = [
        junk | 3,
        0x7fff_1234_5678,
        junk | 64,
        junk | 0xffff_ffff,
        0,
        junk,
    ];
    let epoll_wait = lookup(nr::EPOLL_WAIT).expect("epoll_wait is there");
    let canonical = epoll_wait.canonical(&args);
    assert_eq!(canonical, [3, 0x7fff_1234_5678, 64, -1i64 as u64, 0, 0]);
    let Mem::Out { cap, .. } = epoll_wait.args[1].mem else {
        panic!("epoll_wait writes events")
    };
    assert_eq!(cap.bytes(&canonical, 0, |_| 0), 64 * 12);
    let read = lookup(nr::READ).expect("read is there");
    assert_eq!(
        read.canonical(&[junk | 3, 1, junk, 0, 0, 0])[..3],
        [3, 1, junk]
    );
}
