//! Real programs under `--engine order`, each recording replayed in partial order twice and in total order once.
//!
//! Some are Debian's own binaries, whose threads meet in libc's functions and by locked instructions. Others use plain atomic loads: they are built
//! from Debian's sources by `reprise cc` (`scripts/build-programs.sh`). `sort` has a data race, which its replays learn.

use crate::common;

use common::order::{learns, ORDER};
use common::redis::redis;
use common::{
    assert_same, connect, free_port, full, hang_limit, knob, memcached, run, system_program, top,
    Guest, Outcome, Recording, Running, Workplace, REPRISE,
};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::thread;

/// Recordings of each program.
fn recordings() -> u64 {
    knob("REPRISE_TEST_RECORDINGS", if full() { 5 } else { 2 })
}

/// Replays are what the recording was.
fn exact(place: &Workplace, recording: &Recording) {
    for order in ["partial", "partial", "total"] {
        let replay = place.replay_with(&recording.dir, &["--order", order]);
        replay.assert_civil();
        assert_same(&recording.run, &replay);
    }
    let _ = std::fs::remove_dir_all(&recording.dir);
}

fn check(guest: &Guest) {
    let place = Workplace::new();
    for _ in 0..recordings() {
        let recording = place.record_with(guest, &ORDER);
        assert!(
            guest.outcome.fits(recording.run.status),
            "{}",
            recording.run.describe()
        );
        exact(&place, &recording);
    }
}

/// Lines of text that compress like real ones.
fn text_file(place: &Workplace, megabytes: usize) -> PathBuf {
    let mut numbers = common::Numbers(7);
    let mut text = String::with_capacity((megabytes << 20) + 100);
    while text.len() < megabytes << 20 {
        let (a, b) = (numbers.below(1 << 30), numbers.below(977));
        let _ = writeln!(
            text,
            "{a:08x} some words between, then {b} and {}",
            a % 5000
        );
    }
    let path = place.fresh("input");
    std::fs::write(&path, text).expect("an input file");
    path
}

#[test]
fn pbzip2_with_four_threads() {
    let place = Workplace::new();
    let input = text_file(&place, if full() { 30 } else { 2 });
    let flags = ["-p4", "-1", "-kc"].map(OsStr::new);
    check(
        &Guest::program(system_program("pbzip2"))
            .args(flags)
            .args([&input]),
    );
}

#[test]
fn xz_with_four_threads() {
    let place = Workplace::new();
    let input = text_file(&place, if full() { 30 } else { 2 });
    let flags = ["-T4", "-1", "--block-size=256KiB", "-kc"].map(OsStr::new);
    check(
        &Guest::program(system_program("xz"))
            .args(flags)
            .args([&input]),
    );
}

/// Threads of Python that work outside of the interpreter's lock, and hand each other work by queues, conditions and events. The
/// interpreter looks by plain loads whether it is to let another thread run, so that none may ask for it: it is let run for an hour.
#[test]
fn python_with_four_threads() {
    const SCRIPT: &str = "
import hashlib, queue, sys, threading, zlib
sys.setswitchinterval(3600)
jobs, done, lock, seen = queue.Queue(), queue.Queue(), threading.Lock(), []
def work(me):
    while (job := jobs.get()) is not None:
        data = bytes([job % 251]) * 200000
        told = hashlib.sha256(data).hexdigest(), zlib.crc32(zlib.compress(data))
        with lock: seen.append((me, job))
        done.put((me, job, told))
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for i in range(40): jobs.put(i)
for i in range(40): print(done.get())
for t in threads: jobs.put(None)
for t in threads: t.join()
print(seen)
";
    check(&Guest::program(system_program("python3")).args(["-c", SCRIPT]));
}

/// GNU sort looks at its merge nodes by plain loads while other threads store there. A replay that leaves its path learns where; what is recorded
/// after that is exact.
#[test]
fn sort_with_four_threads_learns_its_race() {
    let place = Workplace::new();
    // Fewer lines are sorted by one thread.
    let mut numbers = common::Numbers(5);
    let lines: String = (0..270_000)
        .map(|_| format!("{}\n", numbers.below(1 << 32)))
        .collect();
    let input = place.fresh("input");
    std::fs::write(&input, lines).expect("an input file");
    let guest = Guest::program(system_program("sort"))
        .args([OsStr::new("--parallel=4"), OsStr::new("-S100M")])
        .args([&input])
        .env("LC_ALL", "C");
    learns(&place, || place.record_with(&guest, &ORDER), &guest);
}

/// Records a server under a load, ends it by SIGTERM, replays it.
fn serve(make: impl Fn(u16, &Path) -> Guest, load: impl Fn(u16)) {
    let place = Workplace::new();
    for _ in 0..recordings() {
        let port = free_port();
        let guest = make(port, &place.fresh_dir("data"));
        let recording = served(&place, &guest, port, &load);
        assert!(
            guest.outcome.fits(recording.run.status),
            "{}",
            recording.run.describe()
        );
        exact(&place, &recording);
    }
}

/// One recording of a server.
fn served(place: &Workplace, guest: &Guest, port: u16, load: &impl Fn(u16)) -> Recording {
    let dir = place.fresh("trace");
    let mut server = Running::start(&mut place.record_command(guest, &ORDER, &dir), None);
    drop(connect(&mut server, port));
    load(port);
    // SAFETY: a signal to a process of ours; `reprise record` hands it on to the program.
    unsafe { libc::kill(server.pid(), libc::SIGTERM) };
    let run = server.finish();
    Recording { run, dir }
}

/// Debian's varnish, in two processes, with a hundred threads and jemalloc, answers by itself. Some of its threads look at flags by plain loads.
#[test]
fn varnish_with_jemalloc() {
    const VCL: &str =
        "vcl 4.1; backend default none; sub vcl_recv { return (synth(200, \"OK\")); }";
    let place = Workplace::new();
    let vcl = place.fresh("vcl");
    std::fs::write(&vcl, VCL).expect("a configuration");
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    // Without its jail: the workplace need not be open to other users.
    let guest = Guest::program(system_program("varnishd"))
        .args(["-j", "none", "-F", "-a", &address, "-n"])
        .args([place.fresh_dir("data").as_os_str()])
        .args([OsStr::new("-f"), vcl.as_os_str()])
        // By a signal to both its processes: 0, or 64 when the child was the first to hear of it.
        .ends(Outcome::Any);
    let load = |port: u16| {
        for i in 0..5 {
            let url = format!("http://127.0.0.1:{port}/{i}");
            let args = ["-s", "-S", "-f", "-o", "/dev/null", &url];
            let got = run(Command::new(system_program("curl")).args(args), None);
            assert!(got.status.success(), "{}", got.describe());
        }
    };
    learns(&place, || served(&place, &guest, port, &load), &guest);
}

/// Eight clients of memcached at the same time. None asks for `stats`: for them memcached 1.6 counts the other threads' free buffers by plain loads,
/// while those take and return some (`threadlocal_stats_aggregate`), which is a race.
fn memcached_load(port: u16) {
    let requests = if full() { 5_000 } else { 100 };
    let clients: Vec<_> = (0..8)
        .map(|me| thread::spawn(move || memcached_client(port, me, requests)))
        .collect();
    for client in clients {
        client.join().expect("a client's answers were right");
    }
}

fn memcached_client(port: u16, me: u64, requests: u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let limit = Some(hang_limit());
    stream.set_read_timeout(limit).expect("a limit");
    let mut answers = BufReader::new(stream.try_clone().expect("a clone"));
    let mut line = move || {
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_string()
    };
    for i in 0..requests {
        let value = format!("value {i} of {me}").repeat(1 + (i % 40) as usize);
        // Others set the same keys, each with its own value: only the length of the answer's first line is known.
        let (key, own, len) = (i % 20, i % 3 == 0, value.len());
        let key = if own {
            format!("key{me}-{key}")
        } else {
            format!("key{key}")
        };
        write!(stream, "set {key} 0 0 {len}\r\n{value}\r\n").expect("send");
        assert_eq!(line(), "STORED");
        write!(stream, "get {key}\r\n").expect("send");
        let head = line();
        assert!(head.starts_with(&format!("VALUE {key} 0 ")), "{head}");
        let found = line();
        assert!(!own || found == value, "{found}");
        assert_eq!(line(), "END");
    }
}

#[test]
fn memcached_with_four_threads() {
    serve(|port, _| memcached(4, port), memcached_load);
}

/// A server built from Debian's sources by `reprise cc`.
fn built_by_us(program: &str) -> PathBuf {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| {
        let script = top().join("scripts/build-programs.sh");
        let out = Command::new("sh").arg(script).arg(REPRISE).output();
        let out = out.expect("sh");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "scripts/build-programs.sh: {said}");
    });
    let path = top().join("target/programs/bin").join(program);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

#[test]
fn memcached_built_by_reprise_cc() {
    let program = built_by_us("memcached");
    let make = |port, _: &Path| Guest {
        program: program.clone(),
        ..memcached(4, port)
    };
    serve(make, memcached_load);
}

#[test]
fn redis_with_io_threads_built_by_reprise_cc() {
    let program = built_by_us("redis-server");
    let make = |port: u16, data: &Path| {
        let flags = ["--io-threads", "4", "--io-threads-do-reads", "yes"];
        redis(&program, port, data, &flags)
    };
    // Its threads look for work again and again: on few processors they keep each other from it.
    let requests = if full() { "20000" } else { "100" };
    serve(make, |port| {
        let port = port.to_string();
        let load = run(
            Command::new(system_program("redis-benchmark")).args([
                "-p",
                &port,
                "-n",
                requests,
                "-c",
                "16",
                "-r",
                "1000",
                "-q",
                "--csv",
                "-t",
                "set,get,incr,lpush,lpop,sadd",
            ]),
            None,
        );
        assert!(load.status.success(), "{}", load.describe());
        let said = load.said().to_lowercase();
        assert!(!said.contains("error"), "{}", load.describe());
    });
}
