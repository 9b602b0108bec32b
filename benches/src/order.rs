//! The rows of `--engine order`: threads run on all processors, natively and recorded.
//!
//! Its bars are those of programs whose threads run at once: a few percent over native with the same number of processors.

use crate::figure::{median, Figure, Row, Runs, Side, Unit};
use crate::kernels;
use crate::load;
use crate::program::Program;
use crate::reads;
use crate::reprise::{own_failure, top};
use crate::rows::{program_of, Bench, PACK_INPUT, SORT_INPUT};
use crate::trees::{free_address, of_group, redis_rate, tool};
use anyhow::{bail, Context, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// The name of the group.
pub const NAME: &str = "order";
/// The engine.
pub const ENGINE: &str = "order";
/// Rounds of its rows, which are many.
pub const ROUNDS: usize = 3;
/// Kernels run some seconds here, so that what every recording costs once counts little.
const SIZE: &str = "large";
/// Times native that a compressor or a sort may take.
const PROGRAM_BAR: f64 = 1.05;
/// The least share of native throughput that a server should keep, with its client on the same processors.
const SERVER_BAR: f64 = 0.85;
/// How much faster two threads are than one, at the least, recorded.
const SPEEDUP_BAR: f64 = 1.8;
/// Kernels whose threads have nothing to do with each other.
const PARALLEL: [&str; 3] = ["black_scholes", "raytrace", "histogram"];
/// Recordings from which the sort's race is learned, at most, ...
const MOST_LESSONS: usize = 16;
/// ... and so many one after the other that are replayed exactly show that little is left to be learned.
const ENOUGH_LESSONS: usize = 4;
/// How often it is learned, at most, when one of the measured replays differs.
const MOST_COURSES: usize = 4;
/// Requests of the memcached row.
const REQUESTS: u64 = 200_000;

type Measure = fn(&Bench) -> Result<Row>;

/// The rows beside the kernels.
const OTHERS: [(&str, Measure); 7] = [
    ("fixed", fixed),
    ("parallel", parallel),
    ("pbzip2", pbzip2),
    ("xz", xz),
    ("sort", sort),
    ("memcached", memcached),
    ("redis", redis),
];

/// Names of all rows, without the group's.
pub fn names() -> impl Iterator<Item = &'static str> {
    let others = OTHERS.iter().map(|(name, _)| *name);
    others.chain(reads::kernels()).chain(kernels::names())
}

/// Measures one row.
///
/// # Errors
/// When there is none of that name, when it fails, or when its replay differs.
pub fn measure(b: &Bench, name: &str, threads: usize) -> Result<Row> {
    if let Some((_, measure)) = OTHERS.iter().find(|(n, _)| *n == name) {
        return measure(b);
    }
    match reads::kernel(b, name, threads) {
        Some(row) => row,
        None => kernels::measure(b, name, threads, SIZE),
    }
}

/// What every recording costs once.
fn fixed(b: &Bench) -> Result<Row> {
    let program = program_of("true", &[])?;
    let rounds = b.many_rounds(&program, &program, b.rounds * 5)?;
    Ok(rounds.over_native("fixed", "/bin/true, whole command, over native"))
}

/// Recorded kernels with one thread and with two.
fn parallel(b: &Bench) -> Result<Row> {
    kernels::build()?;
    let (mut row, mut shares) = (Row::default(), Vec::new());
    for kernel in PARALLEL {
        let path = top().join("tests/guests/bin/kernels").join(kernel);
        let with = |threads: &str| {
            let mut program = Program::new([&path]);
            let arguments = ["-t", threads, "-s", SIZE];
            program.argv.extend(arguments.map(Into::into));
            program
        };
        let [one, two] = [with("1"), with("2")];
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..b.rounds {
            for (i, program) in [&one, &two].into_iter().enumerate() {
                times[i].push(seconds(b, program)?);
                times[2 + i].push(seconds(b, &b.reprise.recording(program))?);
                b.reprise.forget()?;
            }
        }
        let [native, recorded] = [0, 2].map(|i| median(&times[i]) / median(&times[i + 1]));
        shares.push(recorded);
        row.notes.push(format!(
            "{kernel}: two threads are {recorded:.2} times as fast as one, recorded; natively {native:.2} times"
        ));
        row.commands.push(two.shown());
    }
    row.name = "parallel".into();
    row.title =
        "recording is parallel: one thread's time by two threads', least of three kernels".into();
    row.figures = vec![Figure {
        side: Side::Record,
        value: shares.into_iter().fold(f64::INFINITY, f64::min),
        unit: Unit::Share,
        bar: Some(SPEEDUP_BAR),
    }];
    Ok(row)
}

fn seconds(b: &Bench, program: &Program) -> Result<f64> {
    let sample = program.run(&b.dir, "run")?;
    own_failure(&sample)?;
    if !sample.status.success() {
        bail!("{} ended with {}", program.shown(), sample.status);
    }
    Ok(sample.wall.as_secs_f64())
}

fn packer(b: &Bench, name: &'static str, flag: &str) -> Result<Row> {
    let path = b.input("pack.in", PACK_INPUT)?;
    let program = program_of(name, &[flag, "-k", "-c", &path.to_string_lossy()])?;
    let rounds = b.rounds(&program, &program)?;
    let title = format!("{name} {flag} of 30 MB");
    Ok(rounds.row(name, &title, PROGRAM_BAR, None))
}

fn pbzip2(b: &Bench) -> Result<Row> {
    packer(b, "pbzip2", "-p2")
}

fn xz(b: &Bench) -> Result<Row> {
    packer(b, "xz", "-T2")
}

/// A sort. Where its threads race is learned first; from then on what they load there is part of the log. A race that comes up while it is measured
/// is learned as well, and the measurement begins anew.
fn sort(b: &Bench) -> Result<Row> {
    let path = b.input("sort.in", SORT_INPUT)?;
    let path = path.to_string_lossy();
    let program = program_of("sort", &["--parallel=2", "-o", "sort.sorted", &path])?;
    let mut recordings = 0;
    let mut courses = 0;
    let rounds = loop {
        recordings += learn(b, &program)?;
        courses += 1;
        match b.rounds(&program, &program) {
            Err(_) if courses < MOST_COURSES => {}
            measured => break measured?,
        }
    };
    let title = "sort of 50 MB, 2 threads, its race learned";
    let mut row = rounds.row("sort", title, PROGRAM_BAR, None);
    row.notes.push(format!(
        "its race was learned from {recordings} recordings, the last {ENOUGH_LESSONS} of which had nothing new"
    ));
    Ok(row)
}

/// Records and learns until nothing new is learned; how often.
fn learn(b: &Bench, program: &Program) -> Result<usize> {
    let mut exact = 0;
    for n in 1..=MOST_LESSONS {
        let recording = seconds(b, &b.reprise.recording(program));
        let learned = recording.and_then(|_| b.reprise.learn(&b.dir));
        b.reprise.forget()?;
        exact = match learned? {
            true => exact + 1,
            false => 0,
        };
        if exact == ENOUGH_LESSONS {
            return Ok(n);
        }
    }
    bail!("after {MOST_LESSONS} recordings there is still something to be learned");
}

/// A server built by `reprise cc`.
fn built(b: &Bench, name: &str) -> Result<PathBuf> {
    let done = Command::new("sh")
        .arg(top().join("scripts/build-programs.sh"))
        .arg(b.reprise.path())
        .status()
        .context("sh")?;
    if !done.success() {
        bail!("the servers do not build");
    }
    Ok(top().join("target/programs/bin").join(name))
}

fn memcached(b: &Bench) -> Result<Row> {
    let program = built(b, "memcached")?;
    let serve = |address: SocketAddr| {
        let port = address.port().to_string();
        let arguments = [
            "-t",
            "2",
            "-U",
            "0",
            "-u",
            "root",
            "-l",
            "127.0.0.1",
            "-p",
            &port,
        ];
        let mut served = Program::new([&program]);
        served.argv.extend(arguments.map(Into::into));
        served
    };
    let load = |address| {
        load::fill(address)?;
        load::drive(address, REQUESTS)
    };
    throughput(
        b,
        "memcached",
        "memcached -t 2 built by reprise cc, throughput",
        serve,
        load,
    )
}

/// Its threads look for work again and again, so there are no more of them than processors.
fn redis(b: &Bench) -> Result<Row> {
    let program = built(b, "redis-server")?;
    let serve = |address: SocketAddr| {
        let mut served = Program::new([&program]);
        let line = format!(
            "--port {} --bind 127.0.0.1 --io-threads 2 --dir",
            address.port()
        );
        served.argv.extend(line.split(' ').map(Into::into));
        served.argv.push(b.dir.clone().into());
        served.argv.extend(["--save", ""].map(Into::into));
        served
    };
    let load = |address: SocketAddr| {
        let port = address.port().to_string();
        let out = Command::new(tool("redis-benchmark")?)
            .args([
                "-p", &port, "-n", "60000", "-c", "16", "-r", "10000", "--csv", "-t", "set,get",
            ])
            .output()?;
        let said = String::from_utf8_lossy(&out.stdout);
        redis_rate(&said).with_context(|| format!("no rate in {said}"))
    };
    let title = "redis-server with 2 io-threads built by reprise cc, throughput";
    throughput(b, "redis", title, serve, load)
}

/// Requests a second, natively and recorded; the client has the same processors as the server.
fn throughput(
    b: &Bench,
    name: &'static str,
    title: &str,
    serve: impl Fn(SocketAddr) -> Program,
    load: impl Fn(SocketAddr) -> Result<f64>,
) -> Result<Row> {
    let mut rates = [const { Vec::new() }; 2];
    let mut shown = String::new();
    for round in 0..b.rounds {
        for (i, rates) in rates.iter_mut().enumerate() {
            let address = free_address()?;
            let program = serve(address);
            shown = program.shown();
            let command = match i {
                0 => program,
                _ if round > 0 => {
                    b.reprise.forget()?;
                    b.reprise.recording(&program)
                }
                _ => b.reprise.recording(&program),
            };
            rates.push(under(b, &command, address, &load)?);
        }
    }
    let begun = std::time::Instant::now();
    b.reprise.replay(&b.dir)?;
    let replay = begun.elapsed().as_secs_f64();
    let events = b.reprise.size()?.events as f64;
    b.reprise.forget()?;
    let [native, record] = &rates;
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
            value: median(record) / median(native),
            unit: Unit::Share,
            bar: Some(SERVER_BAR),
        }],
        runs: vec![runs("native", native), runs("record", record)],
        notes: vec![format!(
            "the last recording, with {:.1} MB of events, replayed in {replay:.1} s",
            events / 1e6
        )],
        ..Row::default()
    })
}

fn under(
    b: &Bench,
    command: &Program,
    address: SocketAddr,
    load: impl Fn(SocketAddr) -> Result<f64>,
) -> Result<f64> {
    let running = command.start(&b.dir, "server")?;
    let rate = load::await_server(address).and_then(|()| load(address));
    for pid in of_group(running.pid) {
        // SAFETY: processes of the group we started, which we have not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    own_failure(&running.finish()?)?;
    rate
}
