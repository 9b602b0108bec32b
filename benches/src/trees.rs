//! The rows of process trees and servers: throughput while recording, against native pinned to one processor.
//!
//! The load comes from tools that are not recorded, on a processor that the server doesn't use.

use crate::figure::{median, Figure, Row, Runs, Side, Unit};
use crate::load::await_server;
use crate::program::{installed, pin_to, processors, Program};
use crate::reprise::own_failure;
use crate::rows::{program_of, Bench};
use anyhow::{bail, Context, Result};
use std::fmt::Write as _;
use std::fs::{create_dir_all, read_to_string, write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The least share of native throughput that a server should keep.
const SERVER_BAR: f64 = 0.6;
/// The most times native that a build may take.
const BUILD_BAR: f64 = 1.6;
/// Milliseconds that an exec may take more than natively.
const EXEC_BAR: f64 = 1.5;
/// Execs of the exec row.
const EXECS: &str = "300";
/// How long wrk and pgbench load a server, in seconds.
const LOAD_SECONDS: &str = "4";
/// Source files of the built project.
const SOURCES: usize = 60;

/// A server, and what loads it.
struct Served {
    program: Program,
    address: SocketAddr,
    tool: PathBuf,
    arguments: Vec<String>,
    /// What the tool's output says: requests a second.
    rate: fn(&str) -> Option<f64>,
}

pub(crate) fn free_address() -> Result<SocketAddr> {
    // The port is free a moment later, too.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    installed(name).with_context(|| format!("{name} is not installed"))
}

/// The number after `words` in the first line that has them.
fn after(text: &str, words: &str) -> Option<f64> {
    let (_, rest) = text.split_once(words)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// nginx with two workers, under wrk.
///
/// # Errors
/// When it can't be measured.
pub fn nginx(b: &Bench) -> Result<Row> {
    throughput(b, "nginx", "nginx (2 workers) under wrk, throughput", |b| {
        let address = free_address()?;
        let dir = b.dir.join("nginx");
        create_dir_all(&dir)?;
        write(
            dir.join("index.html"),
            "<p>a line of a page</p>\n".repeat(40),
        )?;
        let at = dir.display();
        let mut conf = format!(
            "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 128; }}\nhttp {{ access_log off;\n"
        );
        // SAFETY: asks for an id.
        if unsafe { libc::getuid() } == 0 {
            conf.insert_str(0, "user root;\n");
        }
        for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(conf, "{name}_temp_path {at}/{name};")?;
        }
        writeln!(conf, "server {{ listen {address}; root {at}; }} }}")?;
        write(dir.join("conf"), conf)?;
        Ok(Served {
            program: Program::new([
                tool("nginx")?.into_os_string(),
                "-c".into(),
                dir.join("conf").into(),
                "-e".into(),
                dir.join("error.log").into(),
            ]),
            address,
            tool: tool("wrk")?,
            arguments: vec![
                "-t1".into(),
                "-c16".into(),
                format!("-d{LOAD_SECONDS}s"),
                format!("http://{address}/index.html"),
            ],
            rate: |said| after(said, "Requests/sec:"),
        })
    })
}

/// redis-server under redis-benchmark.
///
/// # Errors
/// When it can't be measured.
pub fn redis(b: &Bench) -> Result<Row> {
    throughput(
        b,
        "redis",
        "redis-server under redis-benchmark, throughput",
        |b| {
            let address = free_address()?;
            let port = address.port().to_string();
            let dir = b.dir.to_string_lossy().into_owned();
            let arguments = [
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                &dir,
            ];
            let load = [
                "-p", &port, "-n", "100000", "-c", "16", "-r", "10000", "--csv", "-t", "set,get",
            ];
            Ok(Served {
                program: program_of("redis-server", &arguments)?,
                address,
                tool: tool("redis-benchmark")?,
                arguments: load.map(String::from).to_vec(),
                rate: redis_rate,
            })
        },
    )
}

/// Requests a second that redis-benchmark tells of, as many of one kind as of the other: "SET","123456.00",...
pub(crate) fn redis_rate(said: &str) -> Option<f64> {
    let each = |kind| -> Option<f64> {
        let line = said.lines().find(|l| l.starts_with(kind))?;
        line.split('"').nth(3)?.parse().ok()
    };
    Some(2.0 / (1.0 / each("\"SET\"")? + 1.0 / each("\"GET\"")?))
}

/// PostgreSQL under pgbench.
///
/// # Errors
/// When it can't be measured.
pub fn postgres(b: &Bench) -> Result<Row> {
    let bin = Path::new("/usr/lib/postgresql/15/bin");
    let data = std::env::temp_dir().join(format!("reprise-bench-postgres.{}", std::process::id()));
    // It refuses to be root.
    // SAFETY: asks for an id.
    let drop = match unsafe { libc::getuid() } {
        0 => vec![
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ],
        _ => vec![],
    };
    let command = |program: PathBuf, arguments: &[&str]| {
        let mut argv: Vec<std::ffi::OsString> = drop.iter().map(|a| a.into()).collect();
        argv.push(program.into());
        argv.extend(arguments.iter().map(|a| a.into()));
        argv
    };
    let done = |argv: Vec<std::ffi::OsString>| -> Result<()> {
        let out = Command::new(&argv[0])
            .args(&argv[1..])
            .current_dir("/")
            .output()?;
        match out.status.success() {
            true => Ok(()),
            false => bail!("{}", String::from_utf8_lossy(&out.stderr)),
        }
    };
    let place = data.to_string_lossy().into_owned();
    done(command(
        bin.join("initdb"),
        &["-D", &place, "-A", "trust", "-N", "-U", "bench"],
    ))?;
    let row = throughput(
        b,
        "postgres",
        "PostgreSQL under pgbench -c 4, throughput",
        |_| {
            let address = free_address()?;
            let port = address.port().to_string();
            let listen = [
                "-D",
                &place,
                "-p",
                &port,
                "-k",
                "",
                "-h",
                "127.0.0.1",
                "-c",
                "fsync=off",
            ];
            let mut argv = command(bin.join("postgres"), &listen);
            argv[0] =
                tool(&argv[0].to_string_lossy()).map_or(argv[0].clone(), PathBuf::into_os_string);
            let pgbench = bin.join("pgbench").to_string_lossy().into_owned();
            let target = format!("-h 127.0.0.1 -p {port} -U bench");
            Ok(Served {
            program: Program::new(argv),
            address,
            tool: "/bin/sh".into(),
            arguments: vec![
                "-c".into(),
                format!(
                    "for i in 1 2 3 4 5 6 7 8 9; do {pgbench} {target} -i -q postgres && break; sleep 1; done >&2 && \
                     {pgbench} {target} -n -c 4 -T {LOAD_SECONDS} postgres"
                ),
            ],
            rate: |said| after(said, "tps ="),
        })
        },
    );
    let _ = std::fs::remove_dir_all(&data);
    row
}

/// A server's throughput, natively on one processor and while it is recorded.
fn throughput(
    b: &Bench,
    name: &'static str,
    title: &str,
    serve: impl Fn(&Bench) -> Result<Served>,
) -> Result<Row> {
    let (mut native, mut record) = (Vec::new(), Vec::new());
    let mut shown = String::new();
    for _ in 0..b.rounds {
        let served = serve(b)?;
        shown = served.program.shown();
        native.push(under(
            b,
            &served,
            &served.program.clone().pinned(b.processor()),
            "native",
        )?);
        if !record.is_empty() {
            b.reprise.forget()?;
        }
        let served = serve(b)?;
        record.push(under(
            b,
            &served,
            &b.reprise.recording(&served.program),
            "record",
        )?);
    }
    let begun = std::time::Instant::now();
    b.reprise.replay(&b.dir)?;
    let replay = begun.elapsed().as_secs_f64();
    let size = b.reprise.size()?;
    b.reprise.forget()?;
    let runs = |name: &'static str, values: &[f64]| Runs {
        name: name.into(),
        values: values.to_vec(),
        unit: "requests/s".into(),
        processor: Vec::new(),
    };
    Ok(Row {
        name: name.into(),
        title: title.into(),
        commands: vec![shown],
        figures: vec![Figure {
            side: Side::Record,
            value: median(&record) / median(&native),
            unit: Unit::Share,
            bar: Some(SERVER_BAR),
        }],
        runs: vec![runs("native", &native), runs("record", &record)],
        notes: vec![format!(
            "the last recording, with {:.1} MB of events, replayed in {replay:.1} s",
            size.events as f64 / 1e6
        )],
        ..Row::default()
    })
}

/// Starts a server, loads it, ends it; requests a second.
fn under(b: &Bench, served: &Served, command: &Program, name: &str) -> Result<f64> {
    let running = command.start(&b.dir, name)?;
    let rate = load(b, served, running.pid);
    for pid in of_group(running.pid) {
        // SAFETY: processes of the group we started, which we have not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    let sample = running.finish()?;
    own_failure(&sample)?;
    rate
}

fn load(b: &Bench, served: &Served, group: i32) -> Result<f64> {
    await_server(served.address)?;
    let everywhere = processors(0);
    let its: Vec<usize> = of_group(group)
        .into_iter()
        .map(processors)
        .filter(|p| p.len() < everywhere.len())
        .flatten()
        .collect();
    let other = everywhere.into_iter().find(|p| !its.contains(p));
    let other = other.context("no processor for the load")?;
    let mut tool = Command::new(&served.tool);
    tool.args(&served.arguments).current_dir(&b.dir);
    // SAFETY: only a system call happens between fork and exec.
    unsafe { tool.pre_exec(move || pin_to(0, other)) };
    let out = tool.output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!(
            "the load failed: {said}{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    (served.rate)(&said).with_context(|| format!("no rate in {said}"))
}

/// The first processes of a group that aren't Reprise's own: what was recorded, or runs natively, without its descendants.
pub(crate) fn of_group(group: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids: Vec<i32> = numbers
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    let parents: Vec<(i32, i32)> = pids
        .into_iter()
        .filter_map(|pid| {
            let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (head, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ').skip(1);
            let parent: i32 = fields.next()?.parse().ok()?;
            let its: i32 = fields.next()?.parse().ok()?;
            (its == group && !head.ends_with("(reprise")).then_some((pid, parent))
        })
        .collect();
    let known = |pid: i32| parents.iter().any(|(p, _)| *p == pid);
    let roots = parents.iter().filter(|(_, parent)| !known(*parent));
    roots.map(|(pid, _)| *pid).collect()
}

/// `make -j4` of a C project.
///
/// # Errors
/// When it can't be measured.
pub fn make(b: &Bench) -> Result<Row> {
    let dir = b.dir.join("project");
    create_dir_all(&dir)?;
    for i in 0..SOURCES {
        let mut text =
            String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for k in 0..20 {
            writeln!(text, "int part_{i}_{k}(int x) {{ char b[64]; snprintf(b, sizeof b, \"%d\", x); return (int)strlen(b) * {k} + atoi(b) % {}; }}", i + 2)?;
        }
        write(dir.join(format!("part{i}.c")), text)?;
    }
    write(
        dir.join("main.c"),
        "int part_0_0(int); int main(void) { return part_0_0(7) & 1; }\n",
    )?;
    write(
        dir.join("Makefile"),
        "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n",
    )?;
    let place = dir.to_string_lossy().into_owned();
    let program = program_of("make", &["-s", "-B", "-j4", "-C", &place])?;
    let rounds = b.rounds(&program.clone().pinned(b.processor()), &program)?;
    Ok(rounds.row(
        "make",
        "make -j4 of 61 C files, on one core",
        BUILD_BAR,
        None,
    ))
}

/// What an exec in the tree costs more than natively.
///
/// # Errors
/// When it can't be measured.
pub fn exec(b: &Bench) -> Result<Row> {
    let guest = b.compiled("exec", "-O2")?;
    let program = Program::new([guest.into_os_string(), "/bin/true".into(), EXECS.into()]);
    let rounds = b.rounds(&program.clone().pinned(b.processor()), &program)?;
    let title = "fork, exec and end of /bin/true in a tree, over native on one core";
    Ok(rounds.told_row("exec", title, Unit::Milliseconds, EXEC_BAR))
}
