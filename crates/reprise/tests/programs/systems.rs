//! Real programs, installed from Debian's packages by `scripts/setup-tests.sh`: recorded, replayed, compared.
//!
//! In the ordinary tests the work is small; with `REPRISE_TEST_FULL=1` it has the sizes of the issue, and each is recorded 5
//! times and replayed 5 times each.

use crate::common;

use common::redis::redis;
use common::{
    assert_same, built, check_times, connect, free_port, full, memcached, system_program, Guest,
    Outcome, Recording, Running, Workplace,
};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

fn times() -> (u64, u64) {
    if full() {
        (5, 5)
    } else {
        (2, 2)
    }
}

fn check(guest: &Guest) {
    check_times(guest, &[], times().0, times().1);
}

/// Lines of text that compress and sort like real ones.
fn text_file(place: &Workplace, megabytes: usize) -> PathBuf {
    let path = place.fresh("input");
    let mut text = String::with_capacity((megabytes << 20) + 100);
    let mut x: u64 = 88_172_645_463_325_252;
    while text.len() < megabytes << 20 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let _ = writeln!(
            text,
            "{:08x} some words between, then {} and {}",
            x as u32,
            x >> 40,
            text.len() % 977
        );
    }
    std::fs::write(&path, text).expect("an input file");
    path
}

#[test]
fn small_tools() {
    for (program, args) in [
        ("true", &[][..]),
        ("false", &[]),
        ("date", &["--rfc-3339=ns"]),
        ("ls", &["-la", "/usr/lib"]),
        ("cat", &["/proc/self/maps"]),
        ("seq", &["20000"]),
        ("env", &[]),
        ("dd", &["if=/dev/zero", "of=/dev/null", "bs=512", "count=20000"]),
        ("sha256sum", &["/usr/bin/bash"]),
        ("bash", &["-c", "for i in 1 2 3 4 5; do echo $RANDOM $$ $SECONDS $EPOCHREALTIME; done; printf '%s\\n' {a..e}; exit 3"]),
        ("python3", &["-c", "print(sum(i * i for i in range(10**5)))"]),
    ] {
        let status = match program {
            "false" => 1,
            "bash" => 3,
            _ => 0,
        };
        check(&Guest::program(system_program(program)).args(args.iter().copied()).ends(Outcome::Exit(status)));
    }
}

#[test]
fn sort_with_two_threads() {
    let place = Workplace::new();
    let input = text_file(&place, if full() { 50 } else { 8 });
    check(
        &Guest::program(system_program("sort"))
            .args([
                OsStr::new("--parallel=2"),
                OsStr::new("-S100M"),
                input.as_os_str(),
            ])
            .env("LC_ALL", "C"),
    );
}

#[test]
fn pbzip2_with_two_threads() {
    let place = Workplace::new();
    let input = text_file(&place, if full() { 30 } else { 3 });
    check(&Guest::program(system_program("pbzip2")).args([
        OsStr::new("-p2"),
        OsStr::new("-1"),
        OsStr::new("-kc"),
        input.as_os_str(),
    ]));
}

#[test]
fn xz_with_two_threads() {
    let place = Workplace::new();
    let input = text_file(&place, if full() { 30 } else { 3 });
    check(&Guest::program(system_program("xz")).args([
        OsStr::new("-T2"),
        OsStr::new("-1"),
        OsStr::new("--block-size=1MiB"),
        OsStr::new("-kc"),
        input.as_os_str(),
    ]));
}

#[test]
fn sqlite_inserts() {
    let rows = if full() { 10_000 } else { 1_500 };
    let mut script =
        String::from("create table t(id integer primary key, name text, value real);\n");
    for i in 0..rows {
        // Most in transactions of 100, some on their own: each of these is written through to the disk.
        if i % 100 == 0 {
            script.push_str("begin;\n");
        }
        let _ = writeln!(
            script,
            "insert into t(name, value) values('name {i}', random() % 1000 / 7.0);"
        );
        if i % 100 == 99 {
            script.push_str("commit;\n");
        }
    }
    for i in 0..20 {
        let _ = writeln!(
            script,
            "insert into t(name, value) values('alone {i}', {i});"
        );
    }
    script.push_str("create index by_value on t(value);\nselect count(*), sum(value), max(length(name)) from t;\n");
    script.push_str("select name, value from t order by value limit 20;\nselect datetime('now'), hex(randomblob(8));\n");
    check(
        &Guest::program(system_program("sqlite3"))
            .args(["test.db"])
            .stdin(script),
    );
}

#[test]
fn curl_from_a_local_server() {
    let body: Vec<u8> = (0..300_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let served = body.clone();
    // The server is not recorded; it ends with the test.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = served.clone();
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a clone"));
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|n| n > 2) {
                    line.clear();
                }
                let mut stream = stream;
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                );
                for chunk in served.chunks(7_000) {
                    let _ = write!(stream, "{:x}\r\n", chunk.len());
                    let _ = stream.write_all(chunk);
                    let _ = stream.write_all(b"\r\n");
                }
                let _ = stream.write_all(b"0\r\n\r\n");
            });
        }
    });
    let place = Workplace::new();
    for i in 0..times().0 {
        let guest = Guest::program(system_program("curl")).args([
            "-sS".into(),
            "--noproxy".into(),
            "*".into(),
            "-i".into(),
            format!("http://localhost:{port}/file-{i}"),
        ]);
        let recording = place.record(&guest);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert!(
            recording.run.stdout.ends_with(&body),
            "the body arrived changed: {}",
            recording.run.describe()
        );
        replay_and_verify(&place, &recording);
    }
}

fn replay_and_verify(place: &Workplace, recording: &Recording) {
    for _ in 0..times().1 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    let verify = place.verify(&recording.dir);
    assert!(verify.status.success(), "{}", verify.describe());
}

/// Records a server, has clients speak to it, ends it, replays it. The clients are not recorded.
fn serve(
    make: impl Fn(u16, &Path) -> Guest,
    clients: u64,
    speak: fn(TcpStream, u64, u64),
    end: fn(TcpStream),
) {
    let place = Workplace::new();
    let requests = if full() { 2_000 } else { 150 };
    for _ in 0..times().0 {
        let port = free_port();
        let guest = make(port, &place.fresh_dir("data"));
        let dir = place.fresh("trace");
        let mut server = Running::start(&mut place.record_command(&guest, &[], &dir), None);
        drop(connect(&mut server, port));
        let talks: Vec<_> = (0..clients)
            .map(|me| {
                let stream = connect(&mut server, port);
                thread::spawn(move || speak(stream, me, requests))
            })
            .collect();
        let talked: Vec<_> = talks.into_iter().map(|t| t.join()).collect();
        end(connect(&mut server, port));
        let run = server.finish();
        for t in talked {
            if let Err(why) = t {
                panic!(
                    "a client failed: {}\n{}",
                    common::message(&*why),
                    run.describe()
                );
            }
        }
        assert!(guest.outcome.fits(run.status), "{}", run.describe());
        let recording = Recording { run, dir };
        replay_and_verify(&place, &recording);
    }
}

fn send(stream: &mut TcpStream, request: &str) {
    stream.write_all(request.as_bytes()).expect("send");
}

fn expect_line(from: &mut impl BufRead, wanted: &str) {
    let mut line = String::new();
    from.read_line(&mut line).expect("an answer");
    assert_eq!(line.trim_end(), wanted);
}

#[test]
fn memcached_under_a_client_that_is_not_recorded() {
    fn speak(stream: TcpStream, me: u64, requests: u64) {
        let mut answers = BufReader::new(stream.try_clone().expect("a clone"));
        let mut stream = stream;
        for i in 0..requests {
            let value = format!("value {i} of {me}").repeat(1 + (i % 40) as usize);
            send(
                &mut stream,
                &format!("set key{me}-{} 0 0 {}\r\n{value}\r\n", i % 50, value.len()),
            );
            expect_line(&mut answers, "STORED");
            send(&mut stream, &format!("get key{me}-{}\r\n", i % 50));
            expect_line(
                &mut answers,
                &format!("VALUE key{me}-{} 0 {}", i % 50, value.len()),
            );
            expect_line(&mut answers, &value);
            expect_line(&mut answers, "END");
            send(&mut stream, "incr counter 1\r\n");
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
        }
        send(&mut stream, "stats\r\nquit\r\n");
        let mut rest = String::new();
        answers.read_to_string(&mut rest).expect("the statistics");
        assert!(rest.contains("STAT threads 2"), "{rest}");
    }
    serve(
        |port, _| {
            // `shutdown` raises SIGINT, which memcached handles by ending.
            memcached(2, port).args(["-A"]).ends(Outcome::Any)
        },
        4,
        speak,
        |mut stream| {
            let _ = stream.write_all(b"shutdown\r\n");
            let _ = stream.read(&mut [0; 64]);
        },
    );
}

#[test]
fn redis_under_a_client_that_is_not_recorded() {
    fn speak(stream: TcpStream, me: u64, requests: u64) {
        let mut answers = BufReader::new(stream.try_clone().expect("a clone"));
        let mut stream = stream;
        for i in 0..requests {
            send(
                &mut stream,
                &format!(
                    "SET key:{me}:{} {}\r\n",
                    i % 50,
                    "v".repeat(1 + (i % 100) as usize)
                ),
            );
            expect_line(&mut answers, "+OK");
            send(&mut stream, &format!("GET key:{me}:{}\r\n", i % 50));
            expect_line(&mut answers, &format!("${}", 1 + i % 100));
            expect_line(&mut answers, &"v".repeat(1 + (i % 100) as usize));
            send(&mut stream, "INCR shared\r\n");
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            assert!(line.starts_with(':'), "{line}");
        }
    }
    let program = system_program("redis-server");
    serve(
        |port, data| redis(&program, port, data, &["--appendonly", "no"]),
        4,
        speak,
        |mut stream| {
            let _ = stream.write_all(b"SHUTDOWN NOSAVE\r\n");
            let _ = stream.read(&mut [0; 64]);
        },
    );
}

#[test]
fn shell_script_by_its_first_line() {
    let place = Workplace::new();
    let script = place.fresh("script");
    std::fs::write(
        &script,
        "#!/bin/sh\necho \"script $0 $1 with pid $$\"\nexit 4\n",
    )
    .expect("a script");
    make_executable(&script);
    check(&Guest::program(&script).args(["one"]).ends(Outcome::Exit(4)));
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn several_recordings_at_the_same_time() {
    // Recordings share the store and, on small machines, the processor.
    built("racey");
    let place = Workplace::new();
    let running: Vec<_> = (0..4)
        .map(|_| {
            let dir = place.fresh("trace");
            let guest = Guest::new("mutex_contention").args(["4", "3000"]);
            (
                Running::start(&mut place.record_command(&guest, &[], &dir), None),
                dir,
            )
        })
        .collect();
    for (server, dir) in running {
        let recording = Recording {
            run: server.finish(),
            dir,
        };
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}
