//! The rows of the table: what is run, how often, and what the figures should be at most.

use crate::figure::{median, Figure, Row, Runs, Side, Unit};
use crate::program::{installed, processors, Program, Sample};
use crate::reprise::{own_failure, Reprise, Size};
use crate::{input, load, program, reads, trees};
use anyhow::{bail, Context, Result};
use std::fs::read_to_string;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of a row.
pub const ROUNDS: usize = 5;
/// Rounds of a row whose command takes milliseconds: so many times more.
const SHORT_ROUNDS: usize = 5;
/// Calls of the gate row.
const CALLS: u64 = 10_000_000;
/// Rounds of each of the two loops of the counter row.
const COUNTER: u64 = 1_000_000_000;
/// Requests of the memcached row.
const REQUESTS: u64 = 300_000;
/// Bytes that sort sorts, and that the compressors compress.
pub(crate) const SORT_INPUT: usize = 50_000_000;
pub(crate) const PACK_INPUT: usize = 30_000_000;
/// A trace may be larger than what was read by this many bytes.
const TRACE_ROOM: f64 = 1e6;

/// What the rows need.
#[derive(Debug)]
pub struct Bench {
    /// The command that is judged.
    pub reprise: Reprise,
    /// Where inputs and outputs lie.
    pub dir: PathBuf,
    /// How often everything is run.
    pub rounds: usize,
}

/// A row that can be asked for.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Measures it.
    pub measure: fn(&Bench) -> Result<Row>,
}

/// All rows, in the table's order.
pub const ALL: [Entry; 18] = [
    Entry {
        name: "dd",
        measure: dd,
    },
    Entry {
        name: "python",
        measure: python,
    },
    Entry {
        name: "wc",
        measure: reads::wc,
    },
    Entry {
        name: "cat",
        measure: reads::cat,
    },
    Entry {
        name: "sha1sum",
        measure: reads::sha1sum,
    },
    Entry {
        name: "read",
        measure: reads::whole,
    },
    Entry {
        name: "memcached",
        measure: memcached,
    },
    Entry {
        name: "sort",
        measure: sort,
    },
    Entry {
        name: "pbzip2",
        measure: pbzip2,
    },
    Entry {
        name: "xz",
        measure: xz,
    },
    Entry {
        name: "gate",
        measure: gate,
    },
    Entry {
        name: "true",
        measure: whole_command,
    },
    Entry {
        name: "counter",
        measure: counter,
    },
    Entry {
        name: "nginx",
        measure: trees::nginx,
    },
    Entry {
        name: "redis",
        measure: trees::redis,
    },
    Entry {
        name: "postgres",
        measure: trees::postgres,
    },
    Entry {
        name: "make",
        measure: trees::make,
    },
    Entry {
        name: "exec",
        measure: trees::exec,
    },
];

fn dd(b: &Bench) -> Result<Row> {
    let blocks = ["if=/dev/zero", "of=/dev/null", "bs=512", "count=1000000"];
    let program = program_of("dd", &blocks)?;
    let rounds = b.rounds(&program, &program)?;
    Ok(rounds.row("dd", "dd, 1,000,000 blocks of 512 bytes", 1.8, Some(1.5)))
}

fn python(b: &Bench) -> Result<Row> {
    let program = program_of("python3", &["-c", "sum(i*i for i in range(10**7))"])?;
    let rounds = b.rounds(&program, &program)?;
    Ok(rounds.row("python", "python3, a sum of 10⁷ squares", 1.05, Some(1.05)))
}

fn sort(b: &Bench) -> Result<Row> {
    let path = b.input("sort.in", SORT_INPUT)?;
    let path = path.to_string_lossy();
    let program = program_of("sort", &["--parallel=2", "-o", "sort.sorted", &path])?;
    b.on_one_core("sort", "sort of 50 MB, 2 threads", &program, SORT_INPUT)
}

fn pbzip2(b: &Bench) -> Result<Row> {
    let path = b.input("pack.in", PACK_INPUT)?;
    let program = program_of("pbzip2", &["-p2", "-k", "-c", &path.to_string_lossy()])?;
    b.on_one_core("pbzip2", "pbzip2 of 30 MB, 2 threads", &program, PACK_INPUT)
}

fn xz(b: &Bench) -> Result<Row> {
    let path = b.input("pack.in", PACK_INPUT)?;
    let program = program_of("xz", &["-T2", "-k", "-c", &path.to_string_lossy()])?;
    b.on_one_core("xz", "xz of 30 MB, 2 threads", &program, PACK_INPUT)
}

fn whole_command(b: &Bench) -> Result<Row> {
    let program = program_of("true", &[])?;
    let rounds = b.many_rounds(&program, &program, b.rounds * SHORT_ROUNDS)?;
    let title = "/bin/true, whole command, over native";
    Ok(rounds.over_native("true", title))
}

fn counter(b: &Bench) -> Result<Row> {
    let guest = b.compiled("counter", "-O0")?;
    let program = Program::new([guest.into_os_string(), COUNTER.to_string().into()]);
    let rounds = b.rounds(&program.clone().pinned(b.processor()), &program)?;
    let title = "-O0 loops, counters in memory, 2 threads of 10⁹ rounds";
    let mut row = rounds.row("counter", title, 1.1, Some(2.0));
    row.notes.push(format!(
        "cut in mid-code {} times in the last recording",
        rounds.info["counters"]["cuts"]
    ));
    Ok(row)
}

/// Numbers that programs printed.
fn told(samples: &Samples) -> Vec<f64> {
    let number = |o: &String| o.trim().parse().unwrap_or(f64::NAN);
    samples.output.iter().map(number).collect()
}

/// Time of one call, told by the program itself.
fn gate(b: &Bench) -> Result<Row> {
    let guest = b.compiled("gate", "-O2")?;
    let program = Program::new([guest.into_os_string(), CALLS.to_string().into()]);
    let rounds = b.rounds(&program, &program)?;
    let replay = median(&rounds.replay.wall) / CALLS as f64 * 1e9;
    let title = "a gate at a rewritten site, recorded, over native";
    let mut row = rounds.told_row("gate", title, Unit::Nanoseconds, 120.0);
    row.notes.push(format!(
        "a call replayed takes {replay:.0} ns (the whole command's time by its calls)"
    ));
    Ok(row)
}

fn memcached(b: &Bench) -> Result<Row> {
    let all = processors(0);
    if all.len() < 2 {
        bail!("needs two processors, one for the client");
    }
    let (mut native, mut record, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..b.rounds {
        let server = server()?;
        let alone = server.program.clone().pinned(b.processor());
        let load = b.under_load(&alone, server.address, "native")?;
        native.push(load.rate);
        busy.push(load.busy);
        if !record.is_empty() {
            b.reprise.forget()?;
        }
        let server = self::server()?;
        let recording = b.reprise.recording(&server.program);
        record.push(b.under_load(&recording, server.address, "record")?.rate);
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
        name: "memcached".into(),
        title: "memcached -t 2 under load, throughput".into(),
        commands: vec![server()?.program.shown()],
        figures: vec![Figure {
            side: Side::Record,
            value: median(&record) / median(&native),
            unit: Unit::Share,
            bar: Some(0.75),
        }],
        runs: vec![runs("native", &native), runs("record", &record)],
        notes: vec![
            format!(
                "{REQUESTS} requests over {} connections, a set in {}, the others gets, {} keys of {} bytes; \
                 native on one processor, the client always on another",
                load::CONNECTIONS, load::SET_ONE_IN, load::KEYS, load::VALUE
            ),
            format!("the native server was busy {:.0} % of the time", median(&busy) * 100.0),
            format!(
                "the last recording, with {:.1} MB of events, replayed in {replay:.1} s",
                size.events as f64 / 1e6
            ),
        ],
        ..Row::default()
    })
}

/// A server on a port of its own.
struct Server {
    program: Program,
    address: SocketAddr,
}

fn server() -> Result<Server> {
    // The port is free a moment later, too.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let port = address.port().to_string();
    let mut arguments = vec!["-t", "2", "-U", "0", "-l", "127.0.0.1", "-p", &port];
    // SAFETY: a plain call.
    if unsafe { libc::getuid() } == 0 {
        arguments.extend(["-u", "root"]);
    }
    Ok(Server {
        program: program_of("memcached", &arguments)?,
        address,
    })
}

/// A server's answer to load.
struct Load {
    /// Requests a second.
    rate: f64,
    /// Part of the time that it spent on its processor.
    busy: f64,
}

impl Bench {
    /// The processor that pinned native runs use.
    pub fn processor(&self) -> usize {
        processors(0).first().copied().unwrap_or(0)
    }

    /// An input of text; made when it is asked for first.
    pub(crate) fn input(&self, name: &str, len: usize) -> Result<PathBuf> {
        let path = self.dir.join(name);
        if !path.exists() {
            input::text(&path, len, len as u64)?;
        }
        Ok(path)
    }

    /// A compiled program of `benches/guests`.
    pub(crate) fn compiled(&self, name: &str, optimise: &str) -> Result<PathBuf> {
        let source = crate::reprise::top().join(format!("benches/guests/{name}.c"));
        let path = self.dir.join(name);
        let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let done = Command::new(&cc)
            .args(optimise.split(' '))
            .args(["-pthread", "-o"])
            .args([&path, &source])
            .status()
            .with_context(|| format!("no C compiler ({})", cc.to_string_lossy()))?;
        if !done.success() {
            bail!("{} does not compile", source.display());
        }
        Ok(path)
    }

    /// A row of a program with threads, against one processor, with the size of its trace.
    fn on_one_core(
        &self,
        name: &'static str,
        title: &str,
        program: &Program,
        read: usize,
    ) -> Result<Row> {
        let empty = self.of_empty_input(program)?;
        let rounds = self.rounds(&program.clone().pinned(self.processor()), program)?;
        let mut row = rounds.row(name, title, 1.15, Some(1.15));
        row.figures.push(Figure {
            side: Side::Trace,
            value: rounds.size.beside(&empty) as f64,
            unit: Unit::Bytes,
            bar: Some(read as f64 + TRACE_ROOM),
        });
        let path = program.argv.last().context("an input")?;
        let packed = zstd::stream::encode_all(std::fs::File::open(path)?, 1)?.len();
        row.notes.push(format!(
            "read {:.0} MB, which zstd -1 makes {:.1} MB of; of the trace's {:.1} MB the events take {:.1} MB, kept files {:.1} MB",
            read as f64 / 1e6,
            packed as f64 / 1e6,
            rounds.size.all as f64 / 1e6,
            rounds.size.events as f64 / 1e6,
            rounds.size.kept() as f64 / 1e6
        ));
        Ok(row)
    }

    /// The trace of a program whose last argument is an input, where there is nothing in that.
    fn of_empty_input(&self, program: &Program) -> Result<Size> {
        let empty = self.dir.join("empty.in");
        std::fs::write(&empty, "")?;
        let mut program = program.clone();
        *program.argv.last_mut().context("an input")? = empty.into();
        own_failure(&self.reprise.recording(&program).run(&self.dir, "empty")?)?;
        let size = self.reprise.size()?;
        self.reprise.forget()?;
        Ok(size)
    }

    pub(crate) fn rounds(&self, native: &Program, recorded: &Program) -> Result<Rounds> {
        self.many_rounds(native, recorded, self.rounds)
    }

    /// Native, record, replay, native, ...; every replay must come to what its recording did.
    pub(crate) fn many_rounds(
        &self,
        native: &Program,
        recorded: &Program,
        rounds: usize,
    ) -> Result<Rounds> {
        let mut result = Rounds {
            native: Samples::default(),
            record: Samples::default(),
            replay: Samples::default(),
            size: Size::default(),
            info: serde_json::Value::Null,
            shown: native.shown(),
        };
        let recording = self.reprise.recording(recorded);
        for _ in 0..rounds {
            let sample = native.run(&self.dir, "native")?;
            if !sample.status.success() {
                bail!(
                    "{} ended with {}: {}",
                    native.shown(),
                    sample.status,
                    sample.stderr
                );
            }
            result.native.add(&sample)?;
            let sample = recording.run(&self.dir, "record")?;
            own_failure(&sample)?;
            if !sample.status.success() {
                bail!(
                    "recorded, {} ended with {}: {}",
                    native.shown(),
                    sample.status,
                    sample.stderr
                );
            }
            result.record.add(&sample)?;
            result.size = self.reprise.size()?;
            result.info = self.reprise.info(&self.dir)?;
            let replayed = self.reprise.replay(&self.dir)?;
            if replayed.status != sample.status || !same(&replayed.stdout, &sample.stdout)? {
                bail!("a replay differs from its recording: {}", replayed.stderr);
            }
            result.replay.add(&replayed)?;
            self.reprise.forget()?;
        }
        Ok(result)
    }

    /// Starts a server, puts it under load, ends it.
    fn under_load(&self, command: &Program, address: SocketAddr, name: &str) -> Result<Load> {
        let running = command.start(&self.dir, name)?;
        let group = running.pid;
        let result = load_of(group, address);
        if let Some(server) = server_of(group) {
            // SAFETY: a process of the group we started, which we have not waited for.
            unsafe { libc::kill(server, libc::SIGTERM) };
        }
        let sample = running.finish()?;
        own_failure(&sample)?;
        result
    }
}

fn load_of(group: i32, address: SocketAddr) -> Result<Load> {
    load::await_server(address)?;
    let server = server_of(group).context("no process of memcached")?;
    let its = processors(server);
    let other = processors(0).into_iter().find(|p| !its.contains(p));
    let other = other.context("the server is not pinned")?;
    let client = move || -> Result<f64> {
        program::pin_to(0, other)?;
        load::fill(address)?;
        load::drive(address, REQUESTS)
    };
    let before = ticks(server);
    let begun = std::time::Instant::now();
    let rate = std::thread::spawn(client)
        .join()
        .map_err(|_| anyhow::anyhow!("the client panicked"))??;
    let ticks = ticks(server) - before;
    // SAFETY: a plain call.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Ok(Load {
        rate,
        busy: ticks / a_second / begun.elapsed().as_secs_f64(),
    })
}

/// The process of a group that is the server itself.
fn server_of(group: i32) -> Option<i32> {
    let numbers = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = numbers.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let named = stat.contains("(memcached)");
        named
            && fields(&stat)
                .get(2)
                .is_some_and(|g| *g == group.to_string())
    })
}

/// The fields of /proc/PID/stat after the name: state, parent, group, ...
fn fields(stat: &str) -> Vec<&str> {
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').collect()
}

/// Clock ticks that a process has spent on processors.
fn ticks(pid: i32) -> f64 {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = fields(&stat);
    let number = |i: usize| fields.get(i).and_then(|f| f.parse().ok()).unwrap_or(0.0);
    number(11) + number(12)
}

/// An installed program with arguments.
pub(crate) fn program_of(name: &str, arguments: &[&str]) -> Result<Program> {
    let path = installed(name).with_context(|| format!("{name} is not installed"))?;
    let mut program = Program::new([path]);
    program.argv.extend(arguments.iter().map(|a| a.into()));
    Ok(program)
}

fn same(a: &Path, b: &Path) -> Result<bool> {
    Ok(std::fs::read(a)? == std::fs::read(b)?)
}

/// Most bytes of output that are kept for a row to look at.
const MAX_OUTPUT: u64 = 1000;

/// What the runs of one kind came to.
#[derive(Default)]
struct Samples {
    wall: Vec<f64>,
    processor: Vec<f64>,
    output: Vec<String>,
}

impl Samples {
    fn add(&mut self, s: &Sample) -> Result<()> {
        self.wall.push(s.wall.as_secs_f64());
        self.processor.push(s.processor.as_secs_f64());
        if std::fs::metadata(&s.stdout)?.len() < MAX_OUTPUT {
            self.output.push(read_to_string(&s.stdout)?);
        }
        Ok(())
    }
}

pub(crate) struct Rounds {
    native: Samples,
    record: Samples,
    replay: Samples,
    /// Of the last trace.
    size: Size,
    /// What `reprise info` says of the last trace.
    info: serde_json::Value,
    shown: String,
}

impl Rounds {
    /// The row of a program whose time counts.
    pub(crate) fn row(
        &self,
        name: &'static str,
        title: &str,
        record: f64,
        replay: Option<f64>,
    ) -> Row {
        let native = median(&self.native.wall);
        let figure = |side, samples: &Samples, bar| Figure {
            side,
            value: median(&samples.wall) / native,
            unit: Unit::Times,
            bar,
        };
        let runs = |name: &'static str, samples: &Samples| Runs {
            name: name.into(),
            values: samples.wall.clone(),
            unit: "s".into(),
            processor: samples.processor.clone(),
        };
        Row {
            name: name.into(),
            title: title.into(),
            commands: vec![self.shown.clone()],
            figures: vec![
                figure(Side::Record, &self.record, Some(record)),
                figure(Side::Replay, &self.replay, replay),
            ],
            runs: vec![
                runs("native", &self.native),
                runs("record", &self.record),
                runs("replay", &self.replay),
            ],
            notes: Vec::new(),
            ..Row::default()
        }
    }

    /// The row of a program that tells itself how long one of its rounds took: what recording adds.
    pub(crate) fn told_row(&self, name: &'static str, title: &str, unit: Unit, bar: f64) -> Row {
        let (native, record) = (told(&self.native), told(&self.record));
        let mut row = self.row(name, title, bar, None);
        row.figures = vec![Figure {
            side: Side::Record,
            value: median(&record) - median(&native),
            unit,
            bar: Some(bar),
        }];
        row.runs.truncate(2);
        for (runs, values) in row.runs.iter_mut().zip([native, record]) {
            runs.values = values;
            runs.unit = match unit {
                Unit::Milliseconds => "ms".into(),
                _ => "ns".into(),
            };
        }
        row
    }

    /// The row of a program that takes no time itself: milliseconds over native, with the bar of whole commands.
    pub(crate) fn over_native(&self, name: &'static str, title: &str) -> Row {
        let mut row = self.row(name, title, 15.0, Some(15.0));
        let native = median(&self.native.wall);
        row.figures = vec![
            self.over(&self.record, native, Side::Record),
            self.over(&self.replay, native, Side::Replay),
        ];
        row
    }

    /// Bytes of compressed events in the last trace.
    pub(crate) fn events(&self) -> u64 {
        self.size.events
    }

    /// Milliseconds over native, with the bar of whole commands.
    fn over(&self, samples: &Samples, native: f64, side: Side) -> Figure {
        Figure {
            side,
            value: (median(&samples.wall) - native) * 1e3,
            unit: Unit::Milliseconds,
            bar: Some(15.0),
        }
    }
}
