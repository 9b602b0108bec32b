//! This program called as rr: its command line, its server as gdb finds it with `rr gdbinit`, and Delve's `dlv replay` and `dlv dap` on it. Delve
//! is the real one, as scripts/setup-tests.sh installs it.

use crate::common;

use common::gdb::assert_said;
use common::{run, skip, top, Guest, Outcome, Run, Running, Workplace, REPRISE};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

guests! { debugged_tools }

/// A directory with this program in it, called rr.
fn named_rr(place: &Workplace) -> PathBuf {
    let dir = place.fresh_dir("bin");
    std::os::unix::fs::symlink(REPRISE, dir.join("rr")).expect("a link");
    dir
}

fn rr(place: &Workplace, words: &[&str]) -> Command {
    let mut command = Command::new(named_rr(place).join("rr"));
    command.args(words);
    place.settle(&mut command);
    command
}

/// What it says; it has to succeed.
fn says(place: &Workplace, words: &[&str]) -> Run {
    let run = run(&mut rr(place, words), None);
    run.assert_civil();
    assert!(run.status.success(), "{}", run.describe());
    run
}

fn text_of(dir: &Path) -> &str {
    dir.to_str().expect("a plain path")
}

#[test]
fn tools_learn_its_version_and_traces() {
    let place = Workplace::new();
    assert_eq!(says(&place, &["--version"]).text(), "rr version 5.9.0\n");
    // Delve reads the directory of the trace from a descriptor, up to its end.
    let dir = place.fresh("told");
    let script = format!("exec \"$0\" record --print-trace-dir=3 -n -S -v COLOUR=red sh -c 'echo $COLOUR; (exit 6); exec sh -c \"exit 5\"' 3> {}", dir.display());
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .arg(named_rr(&place).join("rr"));
    place.settle(&mut command);
    let recorded = run(&mut command, None);
    assert_eq!(recorded.status.code(), Some(5), "{}", recorded.describe());
    assert_eq!(recorded.text(), "red\n");
    let told = std::fs::read_to_string(&dir).expect("what was told");
    let trace = told.strip_suffix('\n').expect("a line");
    assert!(Path::new(trace).join("manifest.json").exists(), "{told}");
    let saving = format!("rr: Saving execution to trace directory `{trace}'.");
    assert!(recorded.said().contains(&saving), "{}", recorded.describe());

    let name = Path::new(trace).file_name().expect("a name");
    let listed = says(&place, &["ls", "-t", "-r"]).text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), [name]);
    for trace in [trace, "latest-trace", name.to_str().expect("text")] {
        let table = says(&place, &["ps", trace]).text();
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split('\t').collect()).collect();
        assert_eq!(rows[0], ["PID", "PPID", "EXIT", "CMD"]);
        assert_eq!(rows[1][1..], ["--", "5", rows[1][3]], "{table}");
        assert!(rows[1][3].starts_with("sh -c echo $COLOUR"), "{table}");
        assert_eq!(rows[2][1..], [rows[1][0], "6", "(forked without exec)"]);
        assert_eq!(rows.len(), 3, "{table}");
    }
    let again = run(&mut rr(&place, &["replay", "-a", trace]), None);
    assert_eq!(
        (again.text().as_str(), again.status.code()),
        ("red\n", Some(5))
    );
}

#[test]
fn what_rr_has_and_this_has_not_is_refused() {
    let place = Workplace::new();
    for (words, why) in [
        (&["replay", "--dbghost=0.0.0.0"][..], "127.0.0.1"),
        (&["replay", "-t", "7"], "--trace"),
        (&["replay", "--frob"], "no option --frob"),
        (&["replay", "-s", "x"], "--dbgport wants another value"),
        (&["record", "--num-cores=2", "true"], "--num-cores"),
        (&["record", "--print-trace-dir=77", "true"], "not open"),
        (&["record"], "a program"),
        (&["-M", "record", "true"], "--mark-stdio"),
        (&["record", "-M", "true"], "`rr replay -M`"),
        (&["sources"], "no `rr sources`"),
    ] {
        let run = run(&mut rr(&place, words), None);
        run.assert_own_failure(125);
        assert!(run.said().contains(why), "{}", run.describe());
    }
}

/// What was written is shown with the process and the event at which it was, as tools that read it expect.
#[test]
fn output_is_marked() {
    let place = Workplace::new();
    let script = "echo one; (echo two >&2); printf 'thr'; printf 'ee\\n'; exit 3";
    let shell = Guest::program("/bin/sh").args(["-c", script]);
    let dir = place.record(&shell.ends(Outcome::Exit(3))).dir;
    for words in [
        &["-M", "replay", "-a"][..],
        &["replay", "--mark-stdio", "-a"],
    ] {
        let mut command = rr(&place, words);
        let shown = run(command.arg(&dir), None);
        assert_eq!(shown.status.code(), Some(3), "{}", shown.describe());
        let dumped = run(place.reprise(["dump", "--json"]).arg(&dir), None).text();
        let all = dumped.lines().map(serde_json::from_str::<Value>);
        let events: Vec<Value> = all.map(|e| e.expect("JSON")).collect();
        let mut told = String::new();
        let errors = String::from_utf8_lossy(&shown.stderr);
        for stream in [shown.text(), errors.into_owned()] {
            for mark in stream.split("[rr ").skip(1) {
                let (mark, text) = mark.split_once(']').expect("its end");
                let (pid, event) = mark.split_once(' ').expect("two numbers");
                let is_it = |e: &&Value| e["event"].as_u64() == event.parse().ok();
                let event = events.iter().find(is_it).expect("an event");
                let words = event["text"].as_str().expect("words");
                assert!(words.contains("write("), "{words}");
                assert!(words.contains(text.trim_end()), "{words}: {text}");
                assert!(pid.parse::<i64>().expect("a number") > 0);
                told += text;
            }
        }
        assert_eq!(told, "one\nthree\ntwo\n", "{}", shown.describe());
    }
    // And in a session.
    let mut command = rr(&place, &["replay", "-M"]);
    command
        .arg(&dir)
        .args(["--", "-nx", "-batch", "-ex", "continue"]);
    let session = run(&mut command, None);
    let said = session.text();
    let marked = |text: &str| {
        let mut pieces = said.split("[rr ").skip(1);
        pieces.any(|p| p.split_once(']').is_some_and(|(_, t)| t.starts_with(text)))
    };
    assert!(marked("one\n") && marked("ee\n"), "{}", session.describe());
}

/// A server, and its port.
struct Server {
    running: Running,
    port: String,
}

impl Server {
    fn start(place: &Workplace, words: &[&str], dir: &Path) -> Server {
        let script = "exec \"$0\" replay \"$@\" 2>&1 >/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(named_rr(place).join("rr"));
        command.args(words).arg(dir).arg("--");
        place.settle(&mut command);
        let mut running = Running::start_reading(&mut command, None);
        let said = running.child.stdout.as_mut().expect("its errors");
        let mut lines = BufReader::new(said);
        let mut text = String::new();
        while text.lines().count() < 2 {
            assert_ne!(lines.read_line(&mut text).expect("text"), 0, "{text}");
        }
        let command = text.lines().nth(1).expect("a command");
        let rest = command.split("'target extended-remote 127.0.0.1:").nth(1);
        let port = rest.and_then(|r| r.split('\'').next());
        Server {
            port: port.expect("a port").into(),
            running,
        }
    }

    /// A session of gdb, as a tool starts it that knows rr.
    fn gdb(&self, place: &Workplace, commands: &[&str]) -> Run {
        let init = place.fresh("init");
        std::fs::write(&init, says(place, &["gdbinit"]).stdout).expect("a script");
        let mut command = Command::new("sh");
        place.settle(&mut command);
        command.args(["-c", "exec gdb -nx -batch \"$@\" 2>&1", "gdb", "-x"]);
        command
            .arg(init)
            .env("LC_ALL", "C")
            .env("DEBUGINFOD_URLS", "");
        let target = format!("target extended-remote 127.0.0.1:{}", self.port);
        for line in std::iter::once(&target.as_str()).chain(commands) {
            command.args(["-ex", line]);
        }
        run(&mut command, None)
    }
}

#[test]
fn gdb_finds_the_server_of_rr() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_tools").args(["3"]));
    let server = Server::start(&place, &["-k", "-s", "0", "-q"], &trace.dir);
    let session = server.gdb(
        &place,
        &[
            "break visit",
            "continue",
            "continue",
            "print number",
            "checkpoint",
            "info checkpoints",
            "continue",
            "print number",
            "restart 1",
            "print number",
            "when",
            "delete checkpoint 1",
            "info checkpoints",
            "delete",
            "continue",
            "reverse-continue",
            "when",
            "run 7",
            "when",
        ],
    );
    let wanted = [
        "Breakpoint 1, visit (number=0)",
        "Breakpoint 1, visit (number=1)",
        "$1 = 1",
        "Checkpoint 1 at visit (number=1) at ",
        "ID\tWhen\tWhere\n1\t",
        "Breakpoint 1, visit (number=2)",
        "$2 = 2",
        // Where the checkpoint is, and no further.
        "visit (number=1) at ",
        "$3 = 1",
        "Current event: ",
        "Deleted checkpoint 1.",
        "No checkpoints.",
        "received signal SIGKILL",
        "Program stopped.",
        "Current event: 0\n",
        "Current event: 7\n",
    ];
    assert_said(&session, &wanted);
    // It goes on listening, and what the first one wanted is forgotten.
    let session = server.gdb(&place, &["info threads", "continue", "kill"]);
    assert_said(&session, &["* 1 ", "received signal SIGKILL", "killed"]);
    assert!(!session.text().contains("Breakpoint"), "{}", session.text());
    // SAFETY: a process of ours.
    unsafe { libc::kill(server.running.pid(), libc::SIGTERM) };
    server.running.finish();
}

#[test]
fn a_process_is_debugged_from_where_it_is_another_program() {
    let place = Workplace::new();
    let guest = Guest::new("debugged_tools").args(["2", "exec"]);
    let trace = place.record(&guest);
    let table = says(&place, &["ps", text_of(&trace.dir)]).text();
    let child = table.lines().nth(2).expect("a child");
    let pid = child.split('\t').next().expect("its id");
    for (words, first) in [
        (["-p", pid], "visit (number=1000)"),
        (["-f", pid], "visit (number=500)"),
    ] {
        let words = [&["-s0"][..], &words].concat();
        let server = Server::start(&place, &words, &trace.dir);
        let session = server.gdb(&place, &["break visit", "continue", "when-tid"]);
        assert_said(&session, &[first, &format!("Current tid: {pid}\n")]);
        let ended = server.running.finish();
        assert!(ended.status.success(), "{}", ended.describe());
    }
}

/// Who is neither its user nor root is turned away, as by every server of ours.
#[test]
fn others_are_turned_away() {
    // SAFETY: plain call.
    if unsafe { libc::geteuid() } != 0 {
        return skip("only root can be somebody else");
    }
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_tools").args(["1"]));
    let server = Server::start(&place, &["-s0"], &trace.dir);
    let port = &server.port;
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "bash",
        "-c",
    ]);
    other.arg(format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; echo '$k#6b' >&3; cat <&3"
    ));
    let other = run(&mut other, None);
    assert_eq!(other.text(), "", "{}", other.describe());
    let session = server.gdb(&place, &["when"]);
    assert_said(&session, &["Current event: 0\n"]);
    server.running.finish();
}

/// Delve, and the script that starts it; `None`: it can't run here. It looks at /proc/sys/kernel/perf_event_paranoid, and gives up above 1, since rr
/// would; it is shown another file there.
fn delve(place: &Workplace, words: &[&str]) -> Option<Command> {
    let dlv = top().join("target/dlv/dlv");
    if !dlv.exists() {
        skip("there is no Delve (scripts/setup-tests.sh installs it)");
        return None;
    }
    let paranoid = place.fresh("paranoid");
    std::fs::write(&paranoid, "1\n").expect("a file");
    let script = "mount --bind \"$0\" /proc/sys/kernel/perf_event_paranoid || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script]).arg(paranoid);
    command.arg(dlv).args(words);
    place.settle(&mut command);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(named_rr(place)).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path).expect("a path"));
    let home = place.fresh_dir("home");
    command.env("HOME", &home).env("XDG_CONFIG_HOME", &home);
    command.env("TERM", "dumb");
    Some(command)
}

fn cannot_mount(run: &Run) -> bool {
    run.status.code() == Some(77) || run.said().contains("unshare:")
}

#[test]
fn delve_replays_a_program_of_go() {
    let place = Workplace::new();
    let guest = Guest::new("debugged_go").ends(common::Outcome::Exit(3));
    let trace = place.record(&guest);
    let commands = place.fresh("commands");
    let lines = [
        "config source-list-line-count 0",
        "break main.spoil",
        "continue",
        "print balance",
        "args",
        "stack 2",
        "goroutines",
        "checkpoint before it is spoiled",
        "checkpoints",
        "next",
        "next",
        "print balance",
        "stepout",
        "rewind",
        "print balance",
        "restart c1",
        "print balance",
        "clear-checkpoint c1",
        "checkpoints",
        "clear 1",
        "continue",
        "rewind",
        "restart 7",
        "watch -w main.balance",
        "continue",
        "print balance",
        "rev continue",
        "print balance",
        "exit",
    ];
    std::fs::write(&commands, lines.join("\n")).expect("a script");
    let words = [
        "replay",
        "--allow-non-terminal-interactive=true",
        "--init",
        text_of(&commands),
        text_of(&trace.dir),
    ];
    let Some(mut command) = delve(&place, &words) else {
        return;
    };
    let session = run(&mut command, None);
    if cannot_mount(&session) {
        return skip("this user cannot mount a file here");
    }
    assert!(session.status.success(), "{}", session.describe());
    let wanted = [
        "Breakpoint 1 set at ",
        "> [Breakpoint 1] main.spoil",
        "100\n",
        "what = (*int64)(",
        "in main.spoil",
        "in main.main.func1",
        "* Goroutine ",
        "main.spoil",
        " goroutines]",
        "Checkpoint c1 created.",
        "ID  When  Note\nc1  ",
        "before it is spoiled",
        "-7\n",
        "> [Breakpoint 1] main.spoil",
        "100\n",
        "main.spoil",
        "100\n",
        "ID  When  Note\n",
        "Breakpoint 1 cleared at ",
        "has exited with status 0",
        // The way back leads to the beginning.
        "_rt0_amd64_linux",
        "Current event: 0\n",
        "Current event: 7\n",
        "Watchpoint main.balance set at ",
        "> watchpoint on [main.balance]",
        "-7\n",
        "> watchpoint on [main.balance]",
        "100\n",
    ];
    assert_said(&session, &wanted);
}

/// A client of the Debug Adapter Protocol.
struct Client {
    stream: BufReader<TcpStream>,
    sent: u64,
}

impl Client {
    fn send(&mut self, command: &str, arguments: Value) {
        self.sent += 1;
        let message = json!({"seq": self.sent, "type": "request", "command": command, "arguments": arguments}).to_string();
        let text = format!("Content-Length: {}\r\n\r\n{message}", message.len());
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("sent");
    }

    fn message(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.stream.read_line(&mut line).expect("a line"), 0);
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().expect("a number"),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text).expect("a message");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The body of the next event of this name.
    fn event(&mut self, name: &str) -> Value {
        loop {
            let message = self.message();
            assert_ne!(message["success"], false, "{message}");
            if message["event"] == name {
                return message["body"].clone();
            }
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        self.send(command, arguments);
        loop {
            let message = self.message();
            if message["request_seq"] == self.sent {
                assert_eq!(message["success"], true, "{message}");
                return message["body"].clone();
            }
        }
    }

    /// Where the thread is, and what the variable is there.
    fn here(&mut self, thread: &Value) -> (String, String) {
        let stack = self.ask("stackTrace", json!({"threadId": thread}));
        let frame = &stack["stackFrames"][0];
        let asked = json!({"expression": "main.balance", "frameId": frame["id"]});
        let value = self.ask("evaluate", asked);
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        (text(&frame["name"]), text(&value["result"]))
    }
}

#[test]
fn an_editor_replays_through_delve() {
    let place = Workplace::new();
    let guest = Guest::new("debugged_go").ends(common::Outcome::Exit(3));
    let trace = place.record(&guest);
    let Some(mut command) = delve(&place, &["dap", "--listen=127.0.0.1:0"]) else {
        return;
    };
    let mut server = Running::start_reading(&mut command, None);
    let mut line = String::new();
    let said = server.child.stdout.as_mut().expect("its output");
    BufReader::new(said).read_line(&mut line).expect("text");
    let Some(port) = line.trim().rsplit(':').next().and_then(|p| p.parse().ok()) else {
        let ended = server.finish();
        assert!(cannot_mount(&ended), "{}", ended.describe());
        return skip("this user cannot mount a file here");
    };
    let port: u16 = port;
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream
        .set_read_timeout(Some(common::hang_limit() - Duration::from_secs(1)))
        .expect("a limit");
    let mut client = Client {
        stream: BufReader::new(stream),
        sent: 0,
    };
    client.ask("initialize", json!({"adapterID": "test"}));
    client.send(
        "launch",
        json!({"mode": "replay", "traceDirPath": text_of(&trace.dir)}),
    );
    client.event("initialized");
    client.ask(
        "setFunctionBreakpoints",
        json!({"breakpoints": [{"name": "main.spoil"}]}),
    );
    client.send("configurationDone", json!({}));
    let thread = client.event("stopped")["threadId"].clone();
    let place_of = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert_eq!(client.here(&thread), place_of("main.spoil", "100"));
    client.send("stepOut", json!({"threadId": thread}));
    client.event("stopped");
    assert_eq!(client.here(&thread), place_of("main.main.func1", "-7"));
    client.send("reverseContinue", json!({"threadId": thread}));
    client.event("stopped");
    assert_eq!(client.here(&thread), place_of("main.spoil", "100"));
    client.ask("disconnect", json!({}));
    drop(client);
    let ended = server.finish();
    assert!(ended.status.success(), "{}", ended.describe());
}
