//! `reprise mcp` as its clients see it: one that was written by others (the official Python SDK's), and lines of JSON, right and wrong ones. What docs/MCP.md
//! shows is done here, call by call.

use crate::common;

use common::{hang_limit, skip, top, Workplace};
use serde_json::{json, Value};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// Beginning of a session.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// A server, and this test as its client.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    next: u64,
}

impl Client {
    /// One that has said who it is.
    fn begin(place: &Workplace) -> Client {
        let mut client = Client::start(place);
        client.say(INITIALIZE);
        let answer = client.hear();
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "reprise",
            "{answer}"
        );
        client.say(INITIALIZED);
        client
    }

    fn start(place: &Workplace) -> Client {
        let mut command = place.reprise(["mcp"]);
        let pipes = [Stdio::piped(), Stdio::piped(), Stdio::inherit()];
        let [input, output, errors] = pipes;
        let mut server = command
            .stdin(input)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("reprise mcp");
        let output = server.stdout.take().expect("its output");
        let (heard, from) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.expect("text");
                let value = serde_json::from_str(&line).expect("a line of JSON");
                if heard.send(value).is_err() {
                    return;
                }
            }
        });
        Client {
            to: server.stdin.take(),
            server,
            from,
            next: 1,
        }
    }

    fn say(&mut self, line: &str) {
        let to = self.to.as_mut().expect("a client that still talks");
        writeln!(to, "{line}").expect("a server that listens");
    }

    fn hear(&self) -> Value {
        let heard = self.from.recv_timeout(hang_limit());
        heard.expect("an answer")
    }

    /// Asks, and does not wait.
    fn ask(&mut self, tool: &str, arguments: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.say(&call.to_string());
        id
    }

    /// The answer of a tool; its error, if it is one.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let id = self.ask(tool, arguments);
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        outcome(&answer)
    }

    /// The answer of a tool that has one.
    fn get(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, &arguments);
        answer.unwrap_or_else(|why| panic!("{tool} {arguments}: {why}"))
    }

    /// Why a tool gives none: one sentence.
    fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let why = match self.call(tool, &arguments) {
            Err(why) => why,
            Ok(answer) => panic!("{tool} {arguments}: {answer}"),
        };
        assert!(!why.is_empty() && !why.contains('\n'), "{why}");
        why
    }

    /// The server and all that came of it.
    fn processes(&self) -> HashSet<u32> {
        let mut all = vec![self.server.id()];
        let mut looked = 0;
        while let Some(pid) = all.get(looked) {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let list = std::fs::read_to_string(task.path().join("children"));
                let list = list.unwrap_or_default();
                all.extend(
                    list.split_whitespace()
                        .filter_map(|p| p.parse::<u32>().ok()),
                );
            }
            looked += 1;
        }
        all.into_iter().collect()
    }

    /// Says no more, and waits for its end.
    fn end(mut self) {
        drop(self.to.take());
        wait(
            || self.server.try_wait().expect("a child").is_some(),
            "the server to end",
        );
        let status = self.server.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn outcome(answer: &Value) -> Result<Value, String> {
    if let Some(error) = answer["error"]["message"].as_str() {
        return Err(error.into());
    }
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().expect("a text");
    match result["isError"] == true {
        true => Err(text.into()),
        false => Ok(serde_json::from_str(text).expect("JSON in an answer")),
    }
}

fn wait(mut is_so: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < hang_limit(), "waited for {what}");
        std::thread::sleep(LOOK);
    }
}

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |s| {
        s.rsplit(") ").next().is_some_and(|s| s.starts_with('Z'))
    })
}

/// A program of tests/documents, built without optimisation.
fn document(place: &Workplace, name: &str) -> PathBuf {
    compiled(
        place,
        name,
        &top().join("tests/documents").join(format!("{name}.c")),
    )
}

fn compiled(place: &Workplace, name: &str, source: &Path) -> PathBuf {
    let program = place.path().join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O0", "-pthread", "-o"])
        .arg(&program)
        .arg(source);
    assert!(gcc.status().expect("gcc").success());
    program
}

/// A program of these lines.
fn program(place: &Workplace, name: &str, text: &str) -> PathBuf {
    let source = place.path().join(format!("{name}.c"));
    std::fs::write(&source, text).expect("a source");
    compiled(place, name, &source)
}

fn words(program: &Path, arguments: &[&str]) -> Value {
    let program = program.to_string_lossy().into_owned();
    let all = std::iter::once(program.as_str()).chain(arguments.iter().copied());
    all.collect::<Vec<_>>().into()
}

#[test]
fn a_run_is_recorded_summed_up_and_asked() {
    let place = Workplace::new();
    let crashes = program(
        &place,
        "crashes",
        "#include <stdio.h>\nstatic int *nowhere;\nstatic int seen;\nstatic void touch(int n) {\n    seen = n;\n    seen = 10 * n;\n    if (n == 3) *nowhere = n;\n}\n\
         int main(void) {\n    puts(\"begins\");\n    fflush(stdout);\n    for (int i = 0; i < 5; i++) touch(i);\n    return 0;\n}\n",
    );
    let mut client = Client::begin(&place);
    let ran = client.get("record", json!({"command": words(&crashes, &[])}));
    assert_eq!(ran["stdout"], "begins\n", "{ran}");
    assert_eq!(ran["end"], "killed by SIGSEGV", "{ran}");
    let listed = client.get("list", json!({}));
    assert_eq!(listed["list"][0]["name"], ran["trace"], "{listed}");
    let told = client.get("summary", json!({}));
    assert_eq!(told["suspicious"][0]["what"], "crash", "{told}");
    assert_eq!(
        told["threads"]["list"][0]["frames"][0]["function"], "touch",
        "{told}"
    );
    let events = told["events"].as_u64().expect("a number");
    assert!(!told["last_events"].as_array().expect("a list").is_empty());

    // Of what is asked next, nothing is started anew: the same processes answer.
    let warm = client.processes();
    assert!(
        warm.len() >= 4,
        "server, replay's server, replay, gdb: {warm:?}"
    );
    let stack = client.get("backtrace", json!({"arguments": true}));
    assert_eq!(
        stack["list"][0]["frames"][0]["arguments"]["n"], "3",
        "{stack}"
    );
    assert_eq!(stack["list"][0]["frames"][1]["function"], "main", "{stack}");
    let source = client.get("source", json!({"context": 1}));
    assert!(
        source["lines"][1]["text"]
            .as_str()
            .is_some_and(|l| l.contains("*nowhere = n")),
        "{source}"
    );
    let seen = client.get(
        "evaluate",
        json!({"expressions": ["seen", "i", "1 +", "nowhere == 0"]}),
    );
    let values = &seen["values"];
    assert_eq!(
        (&values[0]["value"], &values[1]["value"]),
        (&json!("30"), &json!("3")),
        "{seen}"
    );
    assert_eq!(values[1]["frame"], 1, "{seen}");
    assert!(values[2]["failed"].is_string(), "{seen}");
    let gdb = |all: &HashSet<u32>| all.iter().find(|p| comm(**p) == "gdb").copied();
    assert!(gdb(&warm).is_some() && gdb(&warm) == gdb(&client.processes()));

    let write = client.get("last_write", json!({"expression": "seen"}));
    assert_eq!(
        (&write["before"], &write["value"]),
        (&json!("3"), &json!("30")),
        "{write}"
    );
    assert_eq!(write["frames"][0]["line"], 6, "{write}");
    // On from there.
    let write = client.get("last_write", json!({"expression": "seen", "at": "here"}));
    assert_eq!(
        (&write["before"], &write["value"]),
        (&json!("20"), &json!("3")),
        "{write}"
    );
    assert_eq!(write["frames"][0]["line"], 5, "{write}");

    let all = client.get("values", json!({"expression": "seen"}));
    let values: Vec<_> = all["list"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| v["value"].clone())
        .collect();
    assert_eq!(
        values,
        ["0", "0", "0", "1", "10", "2", "20", "3", "30"].map(|v| json!(v)),
        "{all}"
    );
    let calls = client.get(
        "calls",
        json!({"function": "touch", "arguments": true, "returns": true}),
    );
    assert_eq!(calls["found"], 4, "{calls}");
    assert_eq!(calls["list"][2]["arguments"][0]["value"], "2", "{calls}");
    let writers = client.get("where", json!({"location": "seen"}));
    assert_eq!(writers["list"][0]["writes"], 4, "{writers}");
    let trail = client.get("origin", json!({"expression": "seen"}));
    assert_eq!(trail["list"][0]["value"], "30", "{trail}");
    let end = client.get("origin", json!({"expression": "seen", "offset": 1}));
    let end = end["list"].as_array().expect("a list");
    assert_eq!(end.len() as u64 + 1, trail["steps"], "{trail}");
    assert!(end.iter().any(|step| step["place"]["line"] == 6), "{trail}");
    // The one that was asked before these is where it was.
    let stack = client.get("backtrace", json!({"at": "crash"}));
    assert_eq!(
        stack["list"][0]["frames"][0]["function"], "touch",
        "{stack}"
    );
    let stack = client.get("backtrace", json!({"at": 0}));
    assert_eq!(stack["event"], 0, "{stack}");

    let page = client.get("events", json!({"count": 3, "from": 0}));
    assert_eq!(page["next"]["from"], 3, "{page}");
    let last = client.get("events", json!({"from": events - 1}));
    assert_eq!(last["list"].as_array().expect("a list").len(), 1, "{last}");
    assert_eq!(gdb(&warm), gdb(&client.processes()));

    let again = client.get("record", json!({"command": words(&crashes, &[])}));
    let diff = client.get("diff", json!({"a": ran["trace"], "b": again["trace"]}));
    assert_eq!(diff["same"], true, "{diff}");
    client.end();
}

fn comm(pid: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.unwrap_or_default().trim().into()
}

#[test]
fn the_worked_example_is_what_the_page_says() {
    let place = Workplace::new();
    let deposits = document(&place, "deposits");
    let mut client = Client::begin(&place);
    let mut asked = Vec::new();
    for (tool, mut arguments) in calls_of_the_page() {
        if let Some(command) = arguments.get_mut("command") {
            *command = words(&deposits, &[]);
        }
        let answer = client.get(&tool, arguments);
        asked.push((tool, answer));
    }
    let of = |tool: &str| {
        let all = asked.iter().filter(|(t, _)| t == tool);
        all.map(|(_, answer)| answer).collect::<Vec<_>>()
    };
    let failed = of("chaos_until_failure")[0];
    assert_eq!(
        (&failed["failed"], &failed["end"]),
        (&json!(true), &json!("killed by SIGABRT")),
        "{failed}"
    );
    let summary = of("summary")[0];
    assert_eq!(summary["suspicious"][0]["what"], "crash", "{summary}");
    let writers = of("where")[0];
    assert_eq!(
        (&writers["found"], &writers["list"][0]["writes"]),
        (&json!(1), &json!(80)),
        "{writers}"
    );
    assert_eq!(
        writers["list"][0]["threads"].as_array().map(Vec::len),
        Some(2)
    );
    // The update that was lost: a write that does not add to the one before.
    let balances = of("values")[0]["list"].as_array().expect("a list");
    let number = |v: &Value| v["value"].as_str().and_then(|v| v.parse::<i64>().ok());
    let lost = balances
        .windows(2)
        .find(|w| number(&w[1]) != number(&w[0]).map(|n| n + 1));
    let [before, after] = lost.expect("a lost update") else {
        unreachable!("two of them")
    };
    assert_ne!(before["thread"], after["thread"], "{before} {after}");
    // And what its writer had read before.
    let read = of("values")[1]["list"].as_array().expect("a list");
    let stale = read.iter().filter(|r| r["thread"] == after["thread"]);
    assert!(
        stale
            .into_iter()
            .any(|r| number(r).map(|n| n + 1) == number(after)),
        "{after}"
    );
    assert!(of("source")[0]["lines"]
        .to_string()
        .contains("before + amount"));
    client.end();
}

/// The calls that stand in docs/MCP.md, in their order.
fn calls_of_the_page() -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(top().join("docs/MCP.md")).expect("the page");
    let lines = text.lines().filter_map(|l| l.strip_prefix("    > "));
    let calls: Vec<_> = lines
        .map(|line| {
            let (tool, arguments) = line.split_once(' ').unwrap_or((line, "{}"));
            (
                tool.to_string(),
                serde_json::from_str(arguments).expect("JSON"),
            )
        })
        .collect();
    assert!(calls.len() >= 6, "{calls:?}");
    calls
}

#[test]
fn a_deadlock_is_recorded_within_its_limit_and_named() {
    let place = Workplace::new();
    let embrace = document(&place, "embrace");
    let mut client = Client::begin(&place);
    let ran = client.get(
        "record",
        json!({"command": words(&embrace, &[]), "time_limit_s": 2}),
    );
    assert_eq!(ran["ended_by_time_limit"], true, "{ran}");
    let told = client.get("summary", json!({}));
    let suspicious = told["suspicious"].as_array().expect("a list");
    let deadlock = suspicious.iter().find(|s| s["what"] == "deadlock");
    let threads = deadlock.unwrap_or_else(|| panic!("{told}"))["threads"].clone();
    assert_eq!(threads.as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!(threads[0]["held_by"], threads[1]["thread"], "{told}");
    assert_eq!(threads[1]["held_by"], threads[0]["thread"], "{told}");
    // Under chaos it is a failure of its own.
    let arguments = json!({"command": words(&embrace, &[]), "run_limit_s": 2, "runs": 3});
    let hangs = client.get("chaos_until_failure", arguments);
    assert_eq!(
        (&hangs["hangs"], &hangs["run"]),
        (&json!(true), &json!(1)),
        "{hangs}"
    );
    let all = client.get(
        "chaos_until_failure",
        json!({"command": ["true"], "runs": 3}),
    );
    assert_eq!(
        (&all["failed"], &all["runs"]),
        (&json!(false), &json!(3)),
        "{all}"
    );
    client.end();
}

#[test]
fn a_program_that_never_ends_is_ended_with_all_that_came_of_it() {
    let place = Workplace::new();
    let busy = program(
        &place,
        "busy",
        "#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         int main(void) {\n    signal(SIGTERM, SIG_IGN);\n    if (fork() == 0) setsid();\n    for (int i = 0; i < 12; i++) open(\"/etc/hostname\", O_RDONLY);\n\
         printf(\"%d\\n\", getpid());\n    fflush(stdout);\n    for (;;) puts(\"a line\");\n}\n",
    );
    let mut client = Client::begin(&place);
    let arguments = json!({"command": words(&busy, &[]), "time_limit_s": 2, "max_bytes": 2000});
    let ran = client.get("record", arguments);
    assert_eq!(ran["ended_by_time_limit"], true, "{ran}");
    assert!(
        ran["stdout"]
            .as_str()
            .is_some_and(|s| s.contains("left out")),
        "{ran}"
    );
    assert!(ran.to_string().len() <= 2000);
    wait(|| client.processes().len() == 1, "what was recorded to end");
    let told = client.get("summary", json!({}));
    let leak = told["suspicious"].as_array().expect("a list").iter();
    let leak = leak.filter(|s| s["of"] == "/etc/hostname").count();
    assert!(leak >= 1, "{told}");
    client.end();
}

#[test]
fn a_server_that_is_asked_to_end_leaves_nothing() {
    let place = Workplace::new();
    let busy = program(
        &place,
        "busy",
        "int main(void) {\n    for (volatile long i = 0;; i++) {\n    }\n}\n",
    );
    let short = program(&place, "short", "int main(void) {\n    return 0;\n}\n");
    let mut client = Client::begin(&place);
    client.get("record", json!({"command": words(&short, &[])}));
    client.get("backtrace", json!({}));
    client.ask(
        "record",
        &json!({"command": words(&busy, &[]), "time_limit_s": 600}),
    );
    wait(
        || client.processes().iter().any(|p| comm(*p) == "busy"),
        "the program",
    );
    let all = client.processes();
    assert!(all.iter().any(|p| comm(*p) == "gdb"), "{all:?}");
    // SAFETY: plain call, to our own child.
    unsafe { libc::kill(client.server.id() as i32, libc::SIGTERM) };
    wait(|| all.iter().all(|p| is_gone(*p)), "all to end");
}

#[test]
fn a_pipe_that_is_closed_ends_a_call_in_its_midst() {
    let place = Workplace::new();
    let busy = program(
        &place,
        "busy",
        "int main(void) {\n    for (volatile long i = 0;; i++) {\n    }\n}\n",
    );
    let mut command = place.reprise(["mcp"]);
    let mut server = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("reprise mcp");
    let mut to = server.stdin.take().expect("its input");
    let mut from = BufReader::new(server.stdout.take().expect("its output"));
    writeln!(to, "{INITIALIZE}\n{INITIALIZED}").expect("a server that listens");
    let mut line = String::new();
    from.read_line(&mut line).expect("an answer");
    let params =
        json!({"name": "record", "arguments": {"command": words(&busy, &[]), "time_limit_s": 600}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    writeln!(to, "{call}").expect("a server that listens");
    let client = Client {
        server,
        to: None,
        from: channel().1,
        next: 1,
    };
    wait(
        || client.processes().iter().any(|p| comm(*p) == "busy"),
        "the program",
    );
    let all = client.processes();
    drop((to, from));
    wait(|| all.iter().all(|p| is_gone(*p)), "all to end");
}

#[test]
fn wrong_messages_and_arguments_get_one_sentence() {
    let place = Workplace::new();
    let mut client = Client::begin(&place);
    for (line, code) in [
        ("no JSON", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700),
        ("[]", -32600),
        ("7", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":9,\"method\":\"ping\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"no/such\"}", -32601),
        ("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":7}}", -32602),
        ("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\"}", -32602),
        ("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":\"nothing\"}}", -32602),
    ] {
        client.say(line);
        let answer = client.hear();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| !m.is_empty() && !m.contains('\n')), "{answer}");
    }
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\",\"x\":\"{}\"}}",
        "x".repeat(2 << 20)
    );
    client.say(&long);
    assert_eq!(client.hear()["error"]["code"], -32600);
    client.say("");
    client.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nobody_knows\"}");
    for (tool, arguments, says) in [
        ("backtrace", json!({}), "no trace"),
        ("backtrace", json!({"trace": "nothing"}), "nothing"),
        ("events", json!({"from": "zero"}), "from"),
        ("events", json!({"form": 0}), "form"),
        ("values", json!({}), "expression"),
        ("record", json!({"command": []}), "command"),
        (
            "record",
            json!({"command": ["/no/such/program"]}),
            "not found",
        ),
        (
            "record",
            json!({"command": ["true"], "engine": "warp"}),
            "warp",
        ),
        (
            "record",
            json!({"command": ["true"], "directory": "/no/such"}),
            "directory",
        ),
        (
            "record",
            json!({"command": ["true"], "time_limit_s": 0}),
            "time_limit_s",
        ),
        ("list", json!({"max_bytes": 1 << 30}), "max_bytes"),
        ("list", json!({"max_bytes": "many"}), "max_bytes"),
    ] {
        let why = client.refused(tool, arguments.clone());
        assert!(why.contains(says), "{tool} {arguments}: {why}");
    }
    // Nothing that was never recorded is left, and it still answers.
    assert_eq!(client.get("list", json!({}))["traces"], 0);
    let short = program(&place, "short", "int main(void) {\n    return 0;\n}\n");
    client.get("record", json!({"command": words(&short, &[])}));
    for (tool, arguments, says) in [
        ("backtrace", json!({"at": 1u64 << 40}), "no event"),
        ("backtrace", json!({"at": "nowhere"}), "nowhere"),
        ("backtrace", json!({"at": "crash"}), "did not crash"),
        ("backtrace", json!({"thread": 1}), "no thread 1"),
        ("backtrace", json!({"pid": 1}), "no process 1"),
        ("values", json!({"expression": "1 +"}), "1 +"),
        ("values", json!({"expression": "nobody"}), "nobody"),
        (
            "values",
            json!({"expression": "1", "at_line": "short.c:999"}),
            "short.c:999",
        ),
        ("calls", json!({"function": "nobody"}), "nobody"),
        ("where", json!({"location": "nobody"}), "nobody"),
        ("last_write", json!({"expression": "nobody"}), "nobody"),
        ("origin", json!({"expression": "nobody"}), "nobody"),
        (
            "origin",
            json!({"expression": "1", "at": "nowhere"}),
            "nowhere",
        ),
        (
            "source",
            json!({"file": "nothing.c", "line": 1}),
            "nothing.c",
        ),
        ("source", json!({"line": 1}), "file"),
        ("evaluate", json!({"expressions": []}), "expressions"),
        ("races", json!({}), "--engine order"),
        ("diff", json!({"a": "one", "b": "two"}), "one"),
        ("bisect", json!({"failing": "one", "passing": "two"}), "one"),
    ] {
        let why = client.refused(tool, arguments.clone());
        assert!(why.contains(says), "{tool} {arguments}: {why}");
    }
    // No commands of a shell.
    let file = place.path().join("made");
    let shell = format!("$_shell(\"touch {}\")", file.display());
    client.get("evaluate", json!({"expressions": [shell]}));
    assert!(!file.exists());
    client.end();
}

#[test]
fn an_agent_is_told_of_functions_of_python() {
    let Some(python) = common::pythons().into_iter().next() else {
        return skip("python3 is older than 3.11, or not CPython");
    };
    let place = Workplace::new();
    let script = common::sources().join("debugged_python.py");
    let line = |what: &str| {
        let text = std::fs::read_to_string(&script).expect("a guest's source");
        text.lines().position(|l| l.contains(what)).expect("a line") + 1
    };
    let mut client = Client::begin(&place);
    let command = json!([python, script, "abort"]);
    client.get("record", json!({"command": command}));
    let told = client.get("backtrace", json!({"frames": 12, "max_bytes": 100_000}));
    let thread = &told["list"][0];
    let frames = thread["frames"].as_array().expect("frames");
    let functions: Vec<&Value> = frames
        .iter()
        .flat_map(|f| f["python"].as_array().into_iter().flatten())
        .collect();
    let names: Vec<_> = functions.iter().map(|f| f["function"].as_str()).collect();
    // Also those of frames that are beyond the limit.
    let wanted = ["compare", "sort", "lists", "work"].map(Some);
    assert_eq!(names[..4], wanted, "{thread}");
    assert_eq!(functions[1]["line"], line("here it sorts"), "{thread}");
    let locals = functions[1]["locals"].as_array().expect("variables");
    let label = locals.iter().find(|l| l["name"] == "label");
    assert_eq!(label.expect("one")["value"], "'of a call'", "{thread}");
    let numbers: Vec<u64> = frames
        .iter()
        .map(|f| f["frame"].as_u64().expect("a number"))
        .collect();
    assert!(
        numbers.is_sorted() && numbers[..12].iter().copied().eq(0..12),
        "{numbers:?}"
    );
    assert!(
        frames[12..].iter().all(|f| f["python"].is_array()),
        "{thread}"
    );
    assert!(!thread.to_string().contains("\"sp\""), "{thread}");
    // What is small has room in a small answer.
    let told = client.get("backtrace", json!({"frames": 3}));
    let functions = &told["list"][0]["frames"][3]["python"];
    assert_eq!(functions[0]["function"], "compare", "{told}");
    let summary = client.get("summary", json!({}));
    assert!(
        summary["threads"].to_string().contains("compare"),
        "{summary}"
    );
    let lines = client.get(
        "source",
        json!({"file": script, "line": line("here it sorts"), "context": 1}),
    );
    assert!(lines["lines"].to_string().contains("libc.qsort"), "{lines}");
    client.end();
}

#[test]
fn an_agent_is_told_of_goroutines_behind_the_threads() {
    let place = Workplace::new();
    let mut client = Client::begin(&place);
    client.get("record", json!({"command": [common::built("asked_go")]}));
    let told = client.get("backtrace", json!({"frames": 4, "max_bytes": 100_000}));
    let list = told["list"].as_array().expect("a list");
    let count = |what: &str| told[what].as_u64().expect("a number") as usize;
    let (threads, goroutines) = list.split_at(count("threads"));
    assert_eq!((goroutines.len(), count("goroutines")), (6, 6), "{told}");
    assert!(threads
        .iter()
        .all(|t| t["thread"].is_u64() && t["goroutine"].is_null()));
    let sleeps = goroutines.iter().find(|g| g["waits_for"] == "sleep");
    let frames = sleeps.expect("one that sleeps")["frames"].as_array();
    let frames = frames.expect("frames");
    let names: Vec<_> = frames.iter().map(|f| f["function"].as_str()).collect();
    assert_eq!(
        names[..3],
        ["runtime.gopark", "time.Sleep", "main.sleeps"].map(Some)
    );
    assert!(frames.len() <= 4, "{told}");
    assert!(told.get("goroutines_are_cut").is_none(), "{told}");
    // One thread is asked for, and no goroutine.
    let thread = threads[0]["thread"].clone();
    let told = client.get("backtrace", json!({"thread": thread}));
    assert_eq!(told["list"].as_array().map(Vec::len), Some(1), "{told}");
    // gdb follows threads' stacks as before.
    let value = client.get("evaluate", json!({"expressions": ["'runtime.allglen'"]}));
    assert!(value["values"][0]["value"].is_string(), "{value}");
    client.end();
}

#[test]
fn much_is_told_page_by_page() {
    let place = Workplace::new();
    let many = program(
        &place,
        "many",
        "static volatile int n;\nstatic volatile int k;\nstatic void pass(int i) {\n    k = i;\n}\nint main(void) {\n    for (int i = 0; i < 150000; i++) {\n        n = i; pass(i);\n    }\n    return 0;\n}\n",
    );
    let mut client = Client::begin(&place);
    client.get("record", json!({"command": words(&many, &[])}));
    let line =
        json!({"expression": "i", "at_line": "many.c:4", "time_limit_s": 100, "max_bytes": 4000});
    let (mut offset, mut seen) = (0, 0u64);
    for _ in 0..3 {
        let mut page = line.clone();
        page["offset"] = json!(offset);
        let answer = client.get("values", page);
        assert!(answer.to_string().len() <= 4000);
        assert_eq!(answer["found"], 100_000, "{answer}");
        assert_eq!(answer["incomplete"]["why"], "there are more", "{answer}");
        for one in answer["list"].as_array().expect("a list") {
            assert_eq!(one["value"], seen.to_string(), "{one}");
            seen += 1;
        }
        offset = answer["next"]["offset"].as_u64().expect("a next page");
        assert_eq!(offset, seen);
    }
    // A question whose time is over says how far it came, and the next one is answered.
    let short = json!({"expression": "n", "watch": true, "time_limit_s": 2});
    let some = client.get("values", short);
    assert_eq!(some["incomplete"]["why"], "the time was over", "{some}");
    assert!(
        some["found"].as_u64().is_some_and(|n| n > 0 && n < 150_000),
        "{some}"
    );
    client.get("backtrace", json!({}));
    client.end();
}

#[test]
fn two_calls_at_once_are_both_answered() {
    let place = Workplace::new();
    let short = program(&place, "short", "int main(void) {\n    return 0;\n}\n");
    let mut client = Client::begin(&place);
    client.get("record", json!({"command": words(&short, &[])}));
    client.get("record", json!({"command": words(&short, &[])}));
    let mut open: HashSet<u64> = HashSet::new();
    for trace in ["short-0", "short-1", "short-0", "short-1"] {
        open.insert(client.ask("backtrace", &json!({"trace": trace, "at": "end"})));
        open.insert(client.ask("record", &json!({"command": words(&short, &[])})));
        open.insert(client.ask(
            "values",
            &json!({"trace": trace, "expression": "1", "function": "main"}),
        ));
    }
    // One that is no more wanted has no answer.
    let unwanted = client.ask("summary", &json!({}));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": unwanted}});
    client.say(&cancel.to_string());
    while !open.is_empty() {
        let answer = client.hear();
        outcome(&answer).unwrap_or_else(|why| panic!("{why}"));
        open.remove(&answer["id"].as_u64().expect("an id"));
    }
    client.end();
}

#[test]
fn a_race_is_told() {
    let place = Workplace::new();
    let source = top().join("tests/documents/deposits.c");
    let program = place.path().join("deposits");
    let built = place
        .reprise(["cc", "--races", "-g", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.expect("reprise cc").success());
    let mut client = Client::begin(&place);
    let arguments = json!({"command": words(&program, &[]), "engine": "order"});
    client.get("record", arguments);
    let races = client.get("races", json!({"time_limit_s": 100}));
    assert_eq!(races["races"], 1, "{races}");
    assert!(
        races["list"][0]["variable"].to_string().contains("account"),
        "{races}"
    );
    let told = client.get("summary", json!({"time_limit_s": 100}));
    let suspicious = told["suspicious"].as_array().expect("a list");
    assert!(
        suspicious.iter().any(|s| s["what"] == "data race"),
        "{told}"
    );
    client.end();
}

/// A client that nobody here wrote: that of the official SDK for Python (scripts/setup-tests.sh).
#[test]
fn the_sdk_of_the_protocol_is_served() {
    let python = top().join("target/mcp-client/bin/python");
    if !python.exists() {
        return skip("there is no Python SDK of the Model Context Protocol (scripts/setup-tests.sh installs it)");
    }
    let place = Workplace::new();
    let embrace = document(&place, "deposits");
    let mut command = Command::new(python);
    place.settle(&mut command);
    command
        .arg(top().join("tests/mcp/client.py"))
        .arg(common::REPRISE)
        .arg(embrace);
    let run = common::run(&mut command, None);
    assert!(run.status.success(), "{}", run.describe());
    assert!(run.text().ends_with("all is well\n"), "{}", run.describe());
}
