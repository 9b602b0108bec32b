//! Real servers, recorded while clients that are not recorded speak to them, ended by SIGTERM, replayed twice.
//!
//! Each load says how many requests were answered, and none may fail. The load lasts a moment; with `REPRISE_TEST_FULL=1` it lasts the
//! 10 seconds of the issue.
#![allow(clippy::print_stdout)]

use crate::common;

use common::redis::redis;
use common::{
    assert_same, built, connect, free_port, full, hang_limit, memcached, run, sources,
    system_program, Guest, Outcome, Recording, Run, Running, Workplace,
};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a load lasts, in seconds.
fn seconds() -> u64 {
    if full() {
        10
    } else {
        1
    }
}

/// What a load did.
struct Served {
    requests: u64,
    errors: u64,
}

/// Records a server under a load, ends it by SIGTERM, replays it, and verifies it by another replay.
fn serve(make: impl Fn(&Path, u16) -> Guest, load: impl Fn(&Path, u16) -> Served) {
    let place = Workplace::new();
    let (data, port) = (place.fresh_dir("data"), free_port());
    let guest = make(&data, port);
    let dir = place.fresh("trace");
    let mut server = Running::start(&mut place.record_command(&guest, &[], &dir), None);
    drop(connect(&mut server, port));
    let served = load(&data, port);
    // SAFETY: a signal to a process of ours; `reprise record` hands it on to the program.
    unsafe { libc::kill(server.pid(), libc::SIGTERM) };
    let run = server.finish();
    println!(
        "{}: {} requests, {} errors",
        guest.label(),
        served.requests,
        served.errors
    );
    assert!(guest.outcome.fits(run.status), "{}", run.describe());
    assert!(
        served.requests > 0,
        "nothing was served: {}",
        run.describe()
    );
    assert_eq!(served.errors, 0, "{}", run.describe());
    let recording = Recording { run, dir };
    assert_same(&recording.run, &place.replay(&recording.dir));
    let verify = place.verify(&recording.dir);
    assert!(verify.status.success(), "{}", verify.describe());
}

/// A command that loads a server; it must succeed.
fn tool(program: &str, args: &[&str]) -> Run {
    let run = run(Command::new(system_program(program)).args(args), None);
    assert!(run.status.success(), "{}", run.describe());
    run
}

/// The first whole number in the first line that contains `words`.
fn number_beside(text: &str, words: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains(words))?;
    let digits: String = line
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// wrk with 8 connections that are kept open. It ends after its time, however slow the machine is: where nothing was answered by then, it begins again.
fn http_load(_: &Path, port: u16) -> Served {
    let time = format!("-d{}s", seconds());
    let url = format!("http://127.0.0.1:{port}/index.html");
    // The first answer may take longer than the load lasts: virtual machines interpret at first.
    let mut first = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    first.set_read_timeout(Some(hang_limit())).expect("a limit");
    first
        .write_all(b"GET /index.html HTTP/1.0\r\n\r\n")
        .expect("a request");
    first.read_exact(&mut [0]).expect("an answer");
    drop(first);
    let begun = Instant::now();
    loop {
        let said = tool("wrk", &["-t1", "-c8", &time, &url]).text();
        let requests = number_beside(&said, "requests in").unwrap_or_else(|| panic!("{said}"));
        // wrk only names them when there are any.
        let refused = number_beside(&said, "Non-2xx").unwrap_or(0);
        let broken = said.contains("Socket errors") as u64;
        let errors = refused + broken;
        if requests + errors > 0 || begun.elapsed() > hang_limit() {
            return Served { requests, errors };
        }
    }
}

/// A file to be served, and its directory.
fn document(data: &Path) -> PathBuf {
    let root = data.join("root");
    std::fs::create_dir(&root).expect("a directory");
    let text = "<p>a line of a page</p>\n".repeat(40);
    std::fs::write(root.join("index.html"), text).expect("a page");
    root
}

fn configuration(data: &Path, text: &str) -> PathBuf {
    let path = data.join("server.conf");
    std::fs::write(&path, text).expect("a configuration");
    path
}

fn nginx(data: &Path, port: u16, processes: &str) -> Guest {
    let (root, at) = (document(data), data.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {at}/{name}; "))
        .collect();
    let conf = configuration(
        data,
        &format!(
            "daemon off; {processes} pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 128; }}\n\
             http {{ access_log {at}/access.log; {temporary}\n\
             server {{ listen 127.0.0.1:{port}; root {}; }} }}\n",
            root.display()
        ),
    );
    Guest::program(system_program("nginx")).args::<_, OsString>([
        "-c".into(),
        conf.into(),
        "-p".into(),
        data.into(),
        "-e".into(),
        data.join("error.log").into(),
    ])
}

#[test]
fn nginx_in_one_process() {
    serve(
        |data, port| nginx(data, port, "master_process off;"),
        http_load,
    );
}

#[test]
fn nginx_with_two_workers() {
    // Workers of a master that is root become nobody, who may not look into the test's directory.
    // SAFETY: asks for an id.
    let user = match unsafe { libc::getuid() } {
        0 => "user root; ",
        _ => "",
    };
    serve(
        |data, port| nginx(data, port, &format!("{user}worker_processes 2;")),
        http_load,
    );
}

fn apache(data: &Path, port: u16, module: &str) -> Guest {
    let (root, at) = (document(data), data.display());
    let modules = "/usr/lib/apache2/modules";
    let conf = configuration(
        data,
        &format!(
            "ServerRoot {at}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {at}/pid\nErrorLog {at}/error.log\n\
             Mutex file:{at}\nLoadModule mpm_{module}_module {modules}/mod_mpm_{module}.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\nLoadModule dir_module {modules}/mod_dir.so\n\
             StartServers 2\nMaxRequestWorkers 50\nDocumentRoot {}\nUser www-data\nGroup www-data\n",
            root.display()
        ),
    );
    // Its workers are another user than the one that runs the tests.
    let workplace = data.parent().expect("the workplace");
    for dir in [workplace, data, root.as_path()] {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755));
    }
    Guest::program(system_program("apache2")).args::<_, OsString>([
        "-D".into(),
        "FOREGROUND".into(),
        "-f".into(),
        conf.into(),
    ])
}

#[test]
fn apache_event() {
    serve(|data, port| apache(data, port, "event"), http_load);
}

#[test]
fn apache_worker() {
    serve(|data, port| apache(data, port, "worker"), http_load);
}

#[test]
fn lighttpd() {
    serve(
        |data, port| {
            let conf = configuration(
                data,
                &format!(
                    "server.document-root = \"{}\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\n\
                     server.errorlog = \"{}/error.log\"\n",
                    document(data).display(),
                    data.display()
                ),
            );
            // Ended while it still has connections, it says 1.
            Guest::program(system_program("lighttpd"))
                .args::<_, OsString>(["-D".into(), "-f".into(), conf.into()])
                .ends(Outcome::Any)
        },
        http_load,
    );
}

#[test]
fn go_http() {
    serve(
        |_, port| Guest::program(built("servers/http")).args([port.to_string()]),
        http_load,
    );
}

#[test]
fn java_http() {
    serve(
        |_, port| {
            built("java/HttpThreads.class");
            Guest::program(system_program("java"))
                .args::<_, OsString>([
                    "-Xshare:auto".into(),
                    "-cp".into(),
                    sources().join("bin/java").into(),
                    "HttpThreads".into(),
                    port.to_string().into(),
                ])
                .ends(Outcome::Exit(143))
        },
        http_load,
    );
}

#[test]
fn node_http() {
    serve(
        |_, port| {
            Guest::program(system_program("node")).args::<_, OsString>([
                sources().join("servers/http.js").into(),
                port.to_string().into(),
            ])
        },
        http_load,
    );
}

#[test]
fn redis_under_its_benchmark() {
    serve(
        |data, port| redis(system_program("redis-server"), port, data, &[]),
        |_, port| {
            let (port, begun) = (port.to_string(), Instant::now());
            let mut served = Served {
                requests: 0,
                errors: 0,
            };
            const ROUND: u64 = 2_000;
            const KINDS: u64 = 6;
            while begun.elapsed() < Duration::from_secs(seconds()) {
                let n = ROUND.to_string();
                let args = [
                    "-p",
                    &port,
                    "-n",
                    &n,
                    "-c",
                    "8",
                    "-r",
                    "1000",
                    "-q",
                    "--csv",
                    "-t",
                    "set,get,incr,lpush,lpop,sadd",
                ];
                let said = tool("redis-benchmark", &args);
                served.requests += ROUND * KINDS;
                served.errors += said.said().to_lowercase().matches("error").count() as u64;
            }
            served
        },
    );
}

#[test]
fn memcached_with_four_threads() {
    serve(
        |_, port| memcached(4, port),
        |_, port| {
            let talks: Vec<_> = (0..8)
                .map(|me| thread::spawn(move || memcached_talk(port, me)))
                .collect();
            let requests = talks
                .into_iter()
                .map(|t| t.join().expect("a client's answers were right"))
                .sum();
            Served {
                requests,
                errors: 0,
            }
        },
    );
}

/// One client of memcached; the number of its requests.
///
/// # Panics
/// When an answer is wrong.
fn memcached_talk(port: u16, me: u64) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
        .set_read_timeout(Some(common::hang_limit()))
        .expect("a limit");
    let mut answers = BufReader::new(stream.try_clone().expect("a clone"));
    let mut line = |wanted: &str| {
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        assert_eq!(line.trim_end(), wanted);
    };
    let begun = Instant::now();
    let mut i = 0u64;
    while begun.elapsed() < Duration::from_secs(seconds()) {
        let value = format!("value {i} of {me}").repeat(1 + (i % 40) as usize);
        let (key, len) = (format!("key{me}-{}", i % 50), value.len());
        write!(stream, "set {key} 0 0 {len}\r\n{value}\r\n").expect("send");
        line("STORED");
        write!(stream, "get {key}\r\n").expect("send");
        line(&format!("VALUE {key} 0 {len}"));
        line(&value);
        line("END");
        i += 1;
    }
    2 * i
}

#[test]
fn mariadb() {
    serve(
        |data, port| {
            let install = run(
                Command::new(system_program("mariadb-install-db"))
                    .args([
                        "--no-defaults",
                        "--user=root",
                        "--auth-root-authentication-method=normal",
                    ])
                    .arg(format!("--datadir={}/db", data.display())),
                None,
            );
            assert!(install.status.success(), "{}", install.describe());
            let at = data.display();
            Guest::program(system_program("mariadbd")).args([
                "--no-defaults".to_string(),
                "--user=root".into(),
                format!("--datadir={at}/db"),
                format!("--socket={at}/socket"),
                format!("--pid-file={at}/pid"),
                format!("--port={port}"),
                "--bind-address=127.0.0.1".into(),
            ])
        },
        |data, _| sql_load(data),
    );
}

/// Four clients that insert, update and ask; the number of statements.
fn sql_load(data: &Path) -> Served {
    let socket = format!("--socket={}/socket", data.display());
    let client = |script: String| {
        let run = run(
            Command::new(system_program("mariadb")).args([
                "--no-defaults",
                &socket,
                "-uroot",
                "-N",
            ]),
            Some(script.as_bytes()),
        );
        assert!(run.status.success(), "{}", run.describe());
        run
    };
    client("create database d; create table d.t(id int primary key auto_increment, k int, v varchar(100), index(k));".into());
    let begun = Instant::now();
    let mut requests = 0;
    let mut round = 0;
    while begun.elapsed() < Duration::from_secs(seconds()) || round == 0 {
        let answers: Vec<Run> = thread::scope(|s| {
            let talks: Vec<_> = (0..4)
                .map(|me| {
                    let script: String = (0..25)
                        .map(|i| {
                            format!(
                                "insert into d.t(k, v) values ({i}, concat('value ', {me}, uuid()));\n\
                                 update d.t set v = concat(v, 'x') where k = {i} and id % 4 = {me};\n\
                                 select count(*), 'rows' from d.t where k = {i};\n"
                            )
                        })
                        .collect();
                    s.spawn(move || client(script))
                })
                .collect();
            talks
                .into_iter()
                .map(|t| t.join().expect("a client's statements went through"))
                .collect()
        });
        for answer in &answers {
            assert_eq!(
                answer.text().matches("rows").count(),
                25,
                "{}",
                answer.describe()
            );
        }
        requests += 4 * 75;
        round += 1;
    }
    Served {
        requests,
        errors: 0,
    }
}

/// Where Debian keeps PostgreSQL's programs.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin";

/// A command of PostgreSQL, which refuses to be root.
fn as_postgres(program: &str) -> Vec<OsString> {
    // SAFETY: asks for an id.
    let mut words: Vec<OsString> = match unsafe { libc::getuid() } {
        0 => vec![
            system_program("setpriv").into(),
            "--reuid=postgres".into(),
            "--regid=postgres".into(),
            "--clear-groups".into(),
        ],
        _ => vec![],
    };
    words.push(format!("{POSTGRES}/{program}").into());
    words
}

#[test]
fn postgres_under_pgbench() {
    // In a directory that both users may enter.
    let home = tempfile::tempdir().expect("a directory");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let db = home.path().join("db");
    let words = as_postgres("initdb");
    let made = run(
        Command::new(&words[0])
            .args(&words[1..])
            .arg("-D")
            .arg(&db)
            .args(["-A", "trust", "-N", "-U", "test"])
            .current_dir("/"),
        None,
    );
    assert!(made.status.success(), "{}", made.describe());
    serve(
        |_, port| {
            let words = as_postgres("postgres");
            Guest::program(&words[0])
                .args(words[1..].iter().cloned())
                .args(["-D".into(), db.clone().into_os_string()])
                .args([
                    "-p",
                    &port.to_string(),
                    "-k",
                    "",
                    "-h",
                    "127.0.0.1",
                    "-c",
                    "fsync=off",
                ])
        },
        |_, port| {
            let port = port.to_string();
            let bench = format!("{POSTGRES}/pgbench");
            let target = ["-h", "127.0.0.1", "-p", &port, "-U", "test"];
            let begun = Instant::now();
            // It listens before it lets anybody in.
            while !run(
                Command::new(&bench)
                    .args(target)
                    .args(["-i", "-q", "postgres"]),
                None,
            )
            .status
            .success()
            {
                assert!(
                    begun.elapsed() < common::hang_limit(),
                    "HANG: nobody is let in"
                );
            }
            let time = seconds().to_string();
            let load = run(
                Command::new(&bench)
                    .args(target)
                    .args(["-n", "-c", "4", "-T", &time, "postgres"]),
                None,
            );
            assert!(load.status.success(), "{}", load.describe());
            let said = load.text();
            Served {
                requests: number_beside(&said, "actually processed").unwrap_or(0),
                errors: number_beside(&said, "failed transactions").unwrap_or(0),
            }
        },
    );
}
