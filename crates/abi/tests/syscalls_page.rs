//! The coverage page, docs/SYSCALLS.md, written from the tables.
//!
//! After a change of a table, `REPRISE_BLESS=1 cargo test -p reprise-abi` writes the page anew; without it the test fails when
//! the page says something else than the tables.

use core::fmt::{Display, Formatter, Result, Write};
use reprise_abi::inputs::can_refer;
use reprise_abi::mapped::can_map;
use reprise_abi::names::errno_name;
use reprise_abi::spec::{Arg, Blocking, Mem, Replay, Restart, Ret, Size, Speculation, SubCall};
use reprise_abi::{fcntl, futex, ioctl, prctl, sockopt, syscalls};

const HEAD: &str = "\
# System calls

<!-- Generated from crates/abi by `REPRISE_BLESS=1 cargo test -p reprise-abi`; changes made here are lost. -->

What Reprise knows of every x86-64 system call, as of Linux 6.18. A call, request or option that is not listed is recorded
all the same: Reprise then watches which memory the kernel writes.

**Arguments** that point to memory say how much: `in` is read, `out` is written, `inout` both, `always` also when the call
fails; `wrote` is how much of the room is really filled. `[len]` is the 32-bit number to which `len` points, `bits n` and
`pages n` are the bytes of a set of n bits and of one byte for each of n bytes' pages. `unknown` memory is watched.

**Replay**: *emulate*: result and memory come from the trace; *by reference*: what is read of a file, sent from it to an output, or mapped of a large one, from a copy of the file. *re-execute*: made again, since it shapes the address space.
*special*: the runtime has its own code for it. *refuse*: the program gets this error, and falls back as on a kernel without
the call; nothing is done.

**Waits**: *no*: never for an outside event. *rarely*: for a disk or a look-up of names. A descriptor's name: when that is
not ready. *yes*: by its nature.

**Signal** says what becomes of the call when a handler ran: it is *restarted* with SA_RESTART, or always fails with *EINTR*.

**Does** says what it does to descriptors, files, the address space, processes, signals and clocks, as far as Reprise follows that.

**In epochs**: what happens while it isn't known whether the open epoch is good. *free*: nothing of the call is left outside of the process. *asks*: it is made, unless it could notice that output is held.
*holds*: its output is held, where that can be told truly, else it commits. *commits*: the epoch is over, and good, before the call is made.

";

struct Count<'a>(Size, &'a [&'a str]);

impl Display for Count<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = |i: u8| self.1.get(i as usize).copied().unwrap_or("?");
        match self.0 {
            Size::Bytes(n) => write!(f, "{n}"),
            Size::Arg(i) => write!(f, "{}", name(i)),
            Size::ArgTimes(i, n) => write!(f, "{} * {n}", name(i)),
            Size::Result => write!(f, "result"),
            Size::ResultTimes(n) => write!(f, "result * {n}"),
            Size::Deref32(i) => write!(f, "[{}]", name(i)),
            Size::Bits(i) => write!(f, "bits {}", name(i)),
            Size::Product(i, j, 1) => write!(f, "{} * {}", name(i), name(j)),
            Size::Product(i, j, n) => write!(f, "{} * {} * {n}", name(i), name(j)),
            Size::ArgPlus(i, n) => write!(f, "{} + {n}", name(i)),
            Size::ResultPlus(n) => write!(f, "result + {n}"),
            Size::Deref32Plus(i, n) => write!(f, "[{}] + {n}", name(i)),
            Size::Pages(i) => write!(f, "pages {}", name(i)),
            Size::Chosen {
                at,
                value,
                then,
                otherwise,
            } => write!(f, "[{}] == {value:#x} ? {then} : {otherwise}", name(at)),
        }
    }
}

/// A kind of memory, in the words of the table.
struct Memory<'a>(Mem, &'a [&'a str]);

impl Display for Memory<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let count = |size| Count(size, self.1);
        let name = |i: u8| self.1.get(i as usize).copied().unwrap_or("?");
        match self.0 {
            Mem::None => Ok(()),
            Mem::Path => write!(f, "path"),
            Mem::Strings => write!(f, "strings"),
            Mem::In(size) => write!(f, "in({})", count(size)),
            Mem::Out { cap, used } if cap == used => write!(f, "out({})", count(cap)),
            Mem::Out { cap, used } => write!(f, "out({}) wrote({})", count(cap), count(used)),
            Mem::InOut { cap, used } if cap == used => write!(f, "inout({})", count(cap)),
            Mem::InOut { cap, used } => write!(f, "inout({}) wrote({})", count(cap), count(used)),
            Mem::OutAlways(size) => write!(f, "out({}) always", count(size)),
            Mem::InOutAlways(size) => write!(f, "inout({}) always", count(size)),
            Mem::IovecIn(i) => write!(f, "in({} iovecs)", name(i)),
            Mem::IovecOut(i) => write!(f, "out({} iovecs)", name(i)),
            Mem::MsghdrIn => write!(f, "in(msghdr)"),
            Mem::MsghdrOut => write!(f, "out(msghdr)"),
            Mem::MmsghdrIn(i) => write!(f, "in({} mmsghdrs)", name(i)),
            Mem::MmsghdrOut(i) => write!(f, "out({} mmsghdrs)", name(i)),
            Mem::Ioctl(i) | Mem::Fcntl(i) | Mem::Command(i, _) => write!(f, "by {}", name(i)),
            Mem::Prctl => write!(f, "by {}", name(0)),
            Mem::Unknown => write!(f, "unknown"),
        }
    }
}

/// The last columns of a row, which are the same in all tables.
struct Classes<'a>(Ret, Replay, bool, Blocking, Restart, &'a [&'a str]);

impl Display for Classes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Classes(ret, replay, refers, blocking, restart, names) = *self;
        f.write_str(match ret {
            Ret::Int => "number",
            Ret::Ptr => "address",
            Ret::Fd => "descriptor",
            Ret::Pid => "id",
        })?;
        match replay {
            Replay::Emulate if refers => f.write_str(" | emulate, by reference | ")?,
            Replay::Emulate => f.write_str(" | emulate | ")?,
            Replay::Reexecute => f.write_str(" | re-execute | ")?,
            Replay::Special if refers => f.write_str(" | special, by reference | ")?,
            Replay::Special => f.write_str(" | special | ")?,
            // A refused call never gets to where it would wait.
            Replay::Refuse(errno) => {
                return write!(f, " | refuse {} | | |", errno_name(errno).unwrap_or("?"))
            }
        }
        match blocking {
            Blocking::Never => f.write_str("no | ")?,
            Blocking::Rarely => f.write_str("rarely | ")?,
            Blocking::Always => f.write_str("yes | ")?,
            Blocking::Fd(i) => write!(f, "{} | ", names.get(i as usize).unwrap_or(&"?"))?,
        }
        f.write_str(match restart {
            Restart::No => "|",
            Restart::Handler => "restarted |",
            Restart::Never => "EINTR |",
        })
    }
}

/// The names of a call's arguments; the unused rest is empty.
fn names_of(args: &[Arg]) -> [&'static str; 6] {
    let mut names = [""; 6];
    for (name, arg) in names.iter_mut().zip(args) {
        *name = arg.name;
    }
    names
}

fn write_summary(out: &mut dyn Write) -> Result {
    let count = |class: fn(Replay) -> bool| {
        syscalls::TABLE
            .iter()
            .flatten()
            .filter(|call| class(call.replay))
            .count()
    };
    writeln!(
        out,
        "{} calls: {} emulated, {} re-executed, {} special, {} refused; {} requests of ioctl, {} commands of fcntl, {} options of \
         prctl.\n",
        count(|_| true),
        count(|replay| replay == Replay::Emulate),
        count(|replay| replay == Replay::Reexecute),
        count(|replay| replay == Replay::Special),
        count(|replay| matches!(replay, Replay::Refuse(_))),
        ioctl::ENTRIES.len(),
        fcntl::ENTRIES.len(),
        prctl::ENTRIES.len(),
    )
}

fn write_calls(out: &mut dyn Write) -> Result {
    out.write_str(
        "| nr | call | result | replay | waits | signal | does | in epochs |\n|---|---|---|---|---|---|---|---|\n",
    )?;
    for call in syscalls::TABLE.iter().flatten() {
        let names = names_of(call.args);
        write!(out, "| {} | `{}(", call.nr, call.name)?;
        for (i, arg) in call.args.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let colon = if arg.mem == Mem::None { "" } else { ": " };
            write!(out, "{comma}{}{colon}{}", arg.name, Memory(arg.mem, &names))?;
        }
        writeln!(
            out,
            ")` | {} {} | {} |",
            Classes(
                call.ret,
                call.replay,
                can_refer(call.nr.into()) || can_map(call.nr.into()),
                call.blocking,
                call.restart,
                &names
            ),
            call.does,
            match (call.replay, syscalls::speculation(call.nr.into())) {
                (Replay::Refuse(_), _) => "free",
                (_, Speculation::Free) => "free",
                (_, Speculation::Asks) => "asks",
                (_, Speculation::Holds) => "holds",
                (_, Speculation::Commits) => "commits",
            }
        )?;
    }
    Ok(())
}

fn write_commands(
    out: &mut dyn Write,
    title: core::fmt::Arguments,
    names: &[&str],
    entries: &[SubCall],
) -> Result {
    write!(out, "\n## {title}\n\n| nr | name | argument | result | replay | waits | signal |\n|---|---|---|---|---|---|---|\n")?;
    for entry in entries {
        let (open, close) = if entry.mem == Mem::None {
            ("", "")
        } else {
            ("`", "` ")
        };
        writeln!(
            out,
            "| {:#x} | {} | {open}{}{close}| {}",
            entry.nr,
            entry.name,
            Memory(entry.mem, names),
            Classes(
                entry.ret,
                entry.replay,
                false,
                entry.blocking,
                entry.restart,
                names
            )
        )?;
    }
    Ok(())
}

fn write_futex(out: &mut dyn Write) -> Result {
    out.write_str(
        "\n## futex: operations\n\nAll of them are the runtime's own.\n\n\
         | nr | name | does | fourth argument | second futex | priority inheritance |\n|---|---|---|---|---|---|\n",
    )?;
    for operation in futex::OPERATIONS {
        let effect = match operation.effect {
            futex::Effect::Wait => "waits",
            futex::Effect::Wake => "wakes",
            futex::Effect::Other => "neither",
        };
        let fourth = match operation.fourth {
            futex::Fourth::Unused => "",
            futex::Fourth::Relative => "timeout from now",
            futex::Fourth::Absolute => "point in time",
            futex::Fourth::Count => "number",
        };
        let yes = |b| if b { "yes" } else { "" };
        let (second, pi) = (yes(operation.second), yes(operation.pi));
        writeln!(
            out,
            "| {} | {} | {effect} | {fourth} | {second} | {pi} |",
            operation.nr, operation.name
        )?;
    }
    Ok(())
}

fn write_socket_options(out: &mut dyn Write) -> Result {
    out.write_str(
        "\n## Socket options that are refused\n\nAll others are recorded.\n\n| level | option | refused with |\n|---|---|---|\n",
    )?;
    for &(level, level_name) in syscalls::flags::SOL {
        for option in 0..128 {
            if let (Some(errno), Some(name)) = (
                sockopt::refused(level, option),
                sockopt::option_name(level, option),
            ) {
                writeln!(
                    out,
                    "| {level_name} | {name} | {} |",
                    errno_name(errno).unwrap_or("?")
                )?;
            }
        }
    }
    out.write_str("| SOL_XDP | all | ENOPROTOOPT |\n")
}

/// Writes the whole page.
///
/// # Errors
/// Those of `out`.
fn write_markdown(out: &mut dyn Write) -> Result {
    out.write_str(HEAD)?;
    write_summary(out)?;
    write_calls(out)?;
    write_commands(
        out,
        format_args!("ioctl: requests"),
        &["fd", "request", "argp"],
        ioctl::ENTRIES,
    )?;
    write_commands(
        out,
        format_args!("fcntl: commands"),
        &["fd", "cmd", "arg"],
        fcntl::ENTRIES,
    )?;
    write_commands(
        out,
        format_args!("prctl: options"),
        &["option", "arg2", "arg3", "arg4", "arg5"],
        prctl::ENTRIES,
    )?;
    for call in syscalls::TABLE.iter().flatten() {
        for arg in call.args {
            if let Mem::Command(_, list) = arg.mem {
                write_commands(
                    out,
                    format_args!("{}: commands", call.name),
                    &names_of(call.args),
                    list,
                )?;
            }
        }
    }
    write_futex(out)?;
    write_socket_options(out)
}

#[test]
fn the_page_in_docs_is_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SYSCALLS.md");
    let mut page = String::new();
    write_markdown(&mut page).expect("a String takes everything");
    if std::env::var_os("REPRISE_BLESS").is_some() {
        std::fs::write(path, &page).expect("docs/SYSCALLS.md can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/SYSCALLS.md is not what the tables say: write it anew with REPRISE_BLESS=1 cargo test -p reprise-abi"
    );
}
