//! `reprise dap` as editors see it: a client of our own, and one that was written by others (@vscode/debugadapter-testsupport); messages that are none, clients
//! that vanish, two of them at once, a hundred thousand results.

use crate::common;

use common::debugging::recorded;
use common::{built, hang_limit, skip, top, Guest, Workplace};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Instant;

guests! { debugged_many }

/// Steps back whose time is told.
const STEPS: usize = 30;

/// A client, at the other end of pipes or of a connection.
struct Client {
    server: Option<Child>,
    to: Option<Box<dyn Write>>,
    from: Receiver<Value>,
    /// What was told and not yet looked at.
    events: Vec<Value>,
    seq: i64,
}

impl Client {
    fn start(place: &Workplace) -> Client {
        let mut server = place
            .reprise(["dap"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("reprise dap");
        let to = Box::new(server.stdin.take().expect("its input"));
        let from = server.stdout.take().expect("its output");
        Client::over(Some(server), to, from)
    }

    fn over(server: Option<Child>, to: Box<dyn Write>, from: impl Read + Send + 'static) -> Client {
        let (heard, messages) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            while let Some(message) = message(&mut from) {
                if heard.send(message).is_err() {
                    return;
                }
            }
        });
        Client {
            server,
            to: Some(to),
            from: messages,
            events: Vec::new(),
            seq: 0,
        }
    }

    /// One that has said who it is.
    fn met(mut self) -> Client {
        let can = self.get(
            "initialize",
            json!({"adapterID": "reprise", "supportsProgressReporting": true}),
        );
        assert_eq!(can["supportsStepBack"], true, "{can}");
        self
    }

    /// One that looks at a trace; breakpoints can be set.
    fn at(place: &Workplace, dir: &Path, more: Value) -> Client {
        let mut client = Client::start(place).met();
        let mut wanted = json!({"trace": dir});
        for (name, value) in more.as_object().into_iter().flatten() {
            wanted[name] = value.clone();
        }
        client.get("attach", wanted);
        client.event("initialized");
        client
    }

    fn say(&mut self, text: &str) {
        let to = self.to.as_mut().expect("a client that still talks");
        to.write_all(text.as_bytes())
            .expect("a server that listens");
        to.flush().expect("a server that listens");
    }

    fn ask(&mut self, command: &str, arguments: Value) -> i64 {
        self.seq += 1;
        let request =
            json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments});
        self.say(&framed(&request.to_string()));
        self.seq
    }

    fn hear(&self) -> Value {
        self.from.recv_timeout(hang_limit()).expect("a message")
    }

    fn answer_to(&mut self, seq: i64) -> Result<Value, String> {
        loop {
            let mut heard = self.hear();
            match heard["type"].as_str() {
                Some("response") if heard["request_seq"] == seq => {
                    return match heard["success"] == true {
                        true => Ok(heard["body"].take()),
                        false => Err(heard["message"].as_str().expect("a reason").to_string()),
                    };
                }
                _ => self.events.push(heard),
            }
        }
    }

    fn get(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.ask(command, arguments.clone());
        let answer = self.answer_to(seq);
        answer.unwrap_or_else(|why| panic!("{command} {arguments}: {why}"))
    }

    fn refused(&mut self, command: &str, arguments: Value) -> String {
        let seq = self.ask(command, arguments.clone());
        match self.answer_to(seq) {
            Err(why) => why,
            Ok(answer) => panic!("{command} {arguments}: {answer}"),
        }
    }

    /// The next event of this name.
    fn event(&mut self, name: &str) -> Value {
        if let Some(i) = self.events.iter().position(|e| e["event"] == name) {
            return self.events.remove(i)["body"].take();
        }
        loop {
            let mut heard = self.hear();
            if heard["event"] == name {
                return heard["body"].take();
            }
            self.events.push(heard);
        }
    }

    /// Makes a motion: where it ended.
    fn moved(&mut self, command: &str, thread: &Value) -> Value {
        self.get(command, json!({"threadId": thread}));
        self.event("stopped")
    }

    fn newest(&mut self, thread: &Value) -> Value {
        let stack = self.get("stackTrace", json!({"threadId": thread, "levels": 20}));
        stack["stackFrames"][0].clone()
    }

    fn breakpoints(&mut self, file: &Path, wanted: Value) -> Value {
        let told = self.get(
            "setBreakpoints",
            json!({"source": {"path": file}, "breakpoints": wanted}),
        );
        told["breakpoints"].clone()
    }

    fn evaluated(&mut self, expression: &str, frame: &Value) -> String {
        let told = self.get(
            "evaluate",
            json!({"expression": expression, "frameId": frame["id"]}),
        );
        told["result"].as_str().expect("a value").to_string()
    }

    /// All text for the console until `wanted` is in it.
    fn console_until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        while !text.contains(wanted) {
            let told = self.event("output");
            text.push_str(told["output"].as_str().expect("text"));
        }
        text
    }

    fn end(mut self) {
        self.get("disconnect", json!({}));
        drop(self.to.take());
        if let Some(mut server) = self.server.take() {
            let status = common::ended(&mut server);
            assert!(status.success(), "{status}");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn framed(body: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

fn message(from: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(n) = line.strip_prefix("Content-Length: ") {
            length = n.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}

/// The source of a guest.
fn source(name: &str) -> PathBuf {
    top().join("tests/guests").join(name)
}

/// The line of a source in which this stands.
fn line_of(file: &Path, text: &str) -> u64 {
    let all = std::fs::read_to_string(file).expect("a source");
    let at = all.lines().position(|line| line.contains(text));
    at.expect("such a line") as u64 + 1
}

#[test]
fn an_editor_goes_forward_and_back() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let file = source("debugged.c");
    let grows = line_of(&file, "here it grows");
    let mut client = Client::at(&place, &trace.dir, json!({}));
    let told = client.breakpoints(
        &file,
        json!([{"line": grows, "condition": "total >= 3"}, {"line": grows, "condition": "no_such_name == 1"}]),
    );
    assert_eq!(
        (&told[0]["verified"], &told[0]["line"]),
        (&json!(true), &json!(grows))
    );
    assert_eq!(told[1]["verified"], false, "{told}");
    assert!(
        told[1]["message"].to_string().contains("no_such_name"),
        "{told}"
    );
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    assert_eq!(stop["reason"], "breakpoint", "{stop}");
    assert_eq!(stop["hitBreakpointIds"], json!([told[0]["id"]]), "{stop}");
    let thread = stop["threadId"].clone();
    let threads = client.get("threads", json!({}));
    assert_eq!(
        threads["threads"].as_array().map(Vec::len),
        Some(3),
        "{threads}"
    );
    let frame = client.newest(&thread);
    assert_eq!(
        (&frame["name"], &frame["line"]),
        (&json!("deposit"), &json!(grows)),
        "{frame}"
    );
    assert_eq!(frame["source"]["path"], json!(file), "{frame}");
    let total: i64 = client.evaluated("total", &frame).parse().expect("a number");
    assert!(total >= 3, "{total}");
    let scopes = client.get("scopes", json!({"frameId": frame["id"]}));
    let locals = scopes["scopes"][0]["variablesReference"].clone();
    let all = client.get("variables", json!({"variablesReference": locals}));
    assert_eq!(all["variables"][0]["name"], "amount", "{all}");
    let amount: i64 = client
        .evaluated("amount", &frame)
        .parse()
        .expect("a number");
    // Over the line and back: what it has done is undone.
    let stop = client.moved("next", &thread);
    assert_eq!(stop["reason"], "step", "{stop}");
    let old = client.refused("variables", json!({"variablesReference": locals}));
    assert!(old.contains("another moment"), "{old}");
    let frame = client.newest(&thread);
    assert_eq!(
        client.evaluated("total", &frame),
        (total + amount).to_string()
    );
    client.moved("stepBack", &thread);
    let frame = client.newest(&thread);
    assert_eq!(frame["line"], grows, "{frame}");
    assert_eq!(client.evaluated("total", &frame), total.to_string());
    // Into a function's caller, and back into it.
    let stop = client.moved("stepOut", &thread);
    assert_eq!(stop["reason"], "step", "{stop}");
    assert_eq!(client.newest(&thread)["name"], "saver");
    client.moved("reprise/stepBackIn", &thread);
    assert_eq!(client.newest(&thread)["name"], "deposit");
    // The first visit that the condition lets through has none before it.
    client.breakpoints(
        &file,
        json!([{"line": grows, "condition": "total >= 3 && total < 6"}]),
    );
    let stop = client.moved("reverseContinue", &thread);
    let stop = match stop["reason"] == "breakpoint" {
        true => client.moved("reverseContinue", &stop["threadId"]),
        false => stop,
    };
    assert!(
        ["breakpoint", "pause"].contains(&stop["reason"].as_str().expect("a reason")),
        "{stop}"
    );
    client.breakpoints(&file, json!([]));
    let stop = client.moved("reverseContinue", &stop["threadId"]);
    assert!(stop["text"].to_string().contains("the beginning"), "{stop}");
    let stop = client.moved("continue", &stop["threadId"]);
    assert!(stop["text"].to_string().contains("the end"), "{stop}");
    // Who spoiled it? From the end, in one go.
    let frame = client.newest(&stop["threadId"]);
    let info = client.get(
        "dataBreakpointInfo",
        json!({"name": "balance", "frameId": frame["id"]}),
    );
    let id = info["dataId"].clone();
    let told = client.get(
        "setDataBreakpoints",
        json!({"breakpoints": [{"dataId": id, "accessType": "write"}]}),
    );
    assert_eq!(told["breakpoints"][0]["verified"], true, "{told}");
    let stop = client.moved("reverseContinue", &stop["threadId"]);
    assert_eq!(
        (&stop["reason"], &stop["text"]),
        (&json!("data breakpoint"), &json!("100 -> -7")),
        "{stop}"
    );
    let frame = client.newest(&stop["threadId"]);
    assert_eq!(
        frame["line"],
        line_of(&file, "here it is spoiled"),
        "{frame}"
    );
    let at = frame["instructionPointerReference"].clone();
    let code = client.get(
        "disassemble",
        json!({"memoryReference": at, "instructionOffset": -3, "instructionCount": 8}),
    );
    let code = code["instructions"].as_array().expect("instructions");
    assert_eq!((code.len(), &code[3]["address"]), (8, &at), "{code:?}");
    assert!(
        code.iter().all(|i| i["presentationHint"] != "invalid"),
        "{code:?}"
    );
    let address = client.evaluated("&balance", &frame);
    let memory = client.get(
        "readMemory",
        json!({"memoryReference": address, "count": 4}),
    );
    // 100, as four bytes.
    assert_eq!(memory["data"], "ZAAAAA==", "{memory}");
    client.end();
}

/// How long a step back by a line takes is shown, and judged by who reads it.
#[test]
fn steps_back_by_a_line_lead_back() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_many"));
    let file = source("debugged_many.c");
    let mut client = Client::at(&place, &trace.dir, json!({}));
    client.breakpoints(
        &file,
        json!([{"line": line_of(&file, "here it counts"), "condition": "what == 40"}]),
    );
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    let thread = stop["threadId"].clone();
    let frame = client.newest(&thread);
    let before: i64 = client
        .evaluated("counter", &frame)
        .parse()
        .expect("a number");
    assert_eq!(before, 40);
    client.breakpoints(&file, json!([]));
    let mut times = Vec::new();
    for _ in 0..STEPS {
        let begun = Instant::now();
        let stop = client.moved("stepBack", &thread);
        times.push(begun.elapsed());
        assert_eq!(stop["reason"], "step", "{stop}");
    }
    times.sort();
    let (median, most) = (times[STEPS / 2], times[STEPS - 1]);
    println!("a step back by a line takes {median:.1?} (median), {most:.1?} at most");
    let frame = client.newest(&thread);
    let after: i64 = client
        .evaluated("counter", &frame)
        .parse()
        .expect("a number");
    assert!(after < before, "{after}");
    client.end();
}

#[test]
fn a_crash_is_told_with_its_signal() {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), &[]);
    let mut client = Client::at(&place, &trace.dir, json!({"at": "crash"}));
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    assert_eq!(stop["reason"], "exception", "{stop}");
    let why = client.get("exceptionInfo", json!({"threadId": stop["threadId"]}));
    assert_eq!(
        (&why["exceptionId"], &why["breakMode"]),
        (&json!("SIGSEGV"), &json!("unhandled")),
        "{why}"
    );
    assert!(
        why["details"]["stackTrace"]
            .to_string()
            .contains("check (what=1)"),
        "{why}"
    );
    let file = source("debugged.c");
    let frame = client.newest(&stop["threadId"]);
    assert_eq!(frame["line"], line_of(&file, "here it crashes"), "{frame}");
    // From the beginning it is come to as well.
    client.get("restart", json!({}));
    let stop = client.event("stopped");
    assert_eq!(
        (&stop["reason"], &stop["event"]),
        (&json!("entry"), &json!(0)),
        "{stop}"
    );
    // gdb has breakpoints of its own in libraries that are not loaded here yet.
    let stop = client.moved("next", &stop["threadId"]);
    assert_ne!(stop["reason"], "pause", "{stop}");
    let stop = client.moved("continue", &stop["threadId"]);
    assert_eq!(stop["reason"], "exception", "{stop}");
    let why = client.get("exceptionInfo", json!({"threadId": stop["threadId"]}));
    assert_eq!(why["exceptionId"], "SIGSEGV", "{why}");
    client.end();
}

#[test]
fn functions_of_python_are_frames_with_their_variables() {
    let Some(python) = common::pythons().into_iter().next() else {
        return skip("python3 is older than 3.11, or not CPython");
    };
    let place = Workplace::new();
    let file = source("debugged_python.py");
    let guest = Guest::program(python).args([file.clone().into_os_string(), "abort".into()]);
    let trace = place.record(&guest.ends(common::Outcome::Signal(libc::SIGABRT)));
    let mut client = Client::at(&place, &trace.dir, json!({"at": "crash"}));
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    let thread = &stop["threadId"];
    let whole = client.get("stackTrace", json!({"threadId": thread}));
    let frames = whole["stackFrames"].as_array().expect("frames").clone();
    assert_eq!(whole["totalFrames"], frames.len(), "{whole}");
    let of_script = |f: &&Value| f["source"]["name"] == "debugged_python.py";
    let functions: Vec<&Value> = frames.iter().filter(of_script).collect();
    let names: Vec<_> = functions.iter().map(|f| f["name"].as_str()).collect();
    assert_eq!(
        names,
        ["compare", "sort", "lists", "work"].map(Some),
        "{whole}"
    );
    assert_eq!(
        functions[0]["line"],
        line_of(&file, "here it aborts"),
        "{whole}"
    );
    assert_eq!(functions[0]["source"]["path"], json!(file), "{whole}");
    // A stretch of the stack is the same stretch, and begins in the midst of it.
    let at = frames
        .iter()
        .position(|f| f["name"] == "sort")
        .expect("it is there");
    let part = json!({"threadId": thread, "startFrame": at - 1, "levels": 3});
    let part = client.get("stackTrace", part);
    let part: Vec<_> = part["stackFrames"]
        .as_array()
        .expect("frames")
        .iter()
        .map(|f| f["name"].clone())
        .collect();
    let wanted: Vec<_> = frames[at - 1..at + 2]
        .iter()
        .map(|f| f["name"].clone())
        .collect();
    assert_eq!(part, wanted, "{whole}");
    let scopes = client.get("scopes", json!({"frameId": functions[1]["id"]}));
    assert_eq!(scopes["scopes"][0]["name"], "Python locals", "{scopes}");
    let locals = scopes["scopes"][0]["variablesReference"].clone();
    let locals = client.get("variables", json!({"variablesReference": locals}));
    let locals = locals["variables"].as_array().expect("variables").clone();
    let value = |name: &str| {
        let one = locals.iter().find(|l| l["name"] == name);
        one.unwrap_or_else(|| panic!("{locals:?}"))["value"].clone()
    };
    assert_eq!(value("numbers"), "[30, 20, 10]");
    assert_eq!(value("label"), "'of a call'");
    assert_eq!(client.evaluated("label", functions[1]), "'of a call'");
    // Native frames are what they were.
    let native = frames
        .iter()
        .find(|f| f["name"].as_str().is_some_and(|n| n.contains("abort")));
    let scopes = client.get("scopes", json!({"frameId": native.expect("a frame")["id"]}));
    assert_eq!(scopes["scopes"][0]["name"], "Locals", "{scopes}");
    // What was told of holds as long as it stands here.
    client.moved("stepBack", thread);
    client.refused("scopes", json!({"frameId": functions[1]["id"]}));
    client.end();
}

#[test]
fn a_logpoint_tells_all_hits_at_once() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let file = source("debugged.c");
    let grows = line_of(&file, "here it grows");
    let mut client = Client::at(&place, &trace.dir, json!({}));
    let told = client.breakpoints(
        &file,
        json!([{"line": grows, "condition": "amount == 2", "logMessage": "{total} and {amount}"}]),
    );
    assert_eq!(told[0]["verified"], true, "{told}");
    client.get("configurationDone", json!({}));
    let text = client.console_until(" hits\n");
    assert!(text.contains(": 5 hits\n"), "{text}");
    let hits: Vec<&str> = text.lines().filter(|l| l.ends_with(" and 2")).collect();
    assert_eq!(hits.len(), 5, "{text}");
    // It stops nobody.
    let stop = client.event("stopped");
    assert!(stop["text"].to_string().contains("the end"), "{stop}");
    // One that can't be asked says so.
    client.breakpoints(
        &file,
        json!([{"line": grows, "logMessage": "{no_such_name}"}]),
    );
    let text = client.console_until("no_such_name");
    assert!(text.contains("No symbol"), "{text}");
    // The same as commands: values, where they come from, and the visits of a line, to one of which one goes.
    let values = client.get("reprise/values", json!({"expression": "total"}));
    assert_eq!(values["found"], 11, "{values}");
    let origin = client.get(
        "reprise/origin",
        json!({"expression": "total", "at": "end"}),
    );
    assert!(origin["found"].as_u64() > Some(0), "{origin}");
    let writers = client.get("reprise/where", json!({"expression": "balance"}));
    assert!(writers.to_string().contains("spoil"), "{writers}");
    let targets = client.get(
        "gotoTargets",
        json!({"source": {"path": file}, "line": grows}),
    );
    let targets = targets["targets"].as_array().expect("targets").clone();
    assert_eq!(targets.len(), 10, "{targets:?}");
    for i in [7, 2] {
        client.get(
            "goto",
            json!({"threadId": stop["threadId"], "targetId": targets[i]["id"]}),
        );
        let stop = client.event("stopped");
        assert_eq!(stop["reason"], "goto", "{stop}");
        let frame = client.newest(&stop["threadId"]);
        assert_eq!(frame["line"], grows, "{frame}");
        let total = values["list"][i]["value"].as_str().expect("a value");
        assert_eq!(client.evaluated("total", &frame), total, "visit {i}");
    }
    let told = client.get(
        "evaluate",
        json!({"expression": "reprise goto 30", "context": "repl"}),
    );
    assert_eq!(told["result"], "event 30", "{told}");
    assert_eq!(client.event("stopped")["event"], 30);
    let told = client.get(
        "evaluate",
        json!({"expression": "-exec info threads", "context": "repl"}),
    );
    assert!(told["result"].to_string().contains("Thread"), "{told}");
    client.end();
}

#[test]
fn a_program_is_recorded_and_its_values_are_shown_as_people_write_them() {
    let place = Workplace::new();
    let program = built("debugged_cpp");
    let file = source("debugged_cpp.cpp");
    let mut client = Client::start(&place).met();
    client.get("launch", json!({"program": program, "stopOnEntry": true}));
    client.event("initialized");
    let text = client.console_until("recorded in");
    assert!(text.contains("4 entries"), "{text}");
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    assert_eq!(stop["reason"], "entry", "{stop}");
    assert_eq!(client.newest(&stop["threadId"])["name"], "main");
    let said = line_of(&file, "entries\\n");
    client.breakpoints(&file, json!([{"line": said}]));
    let stop = client.moved("continue", &stop["threadId"]);
    let frame = client.newest(&stop["threadId"]);
    let told = client.get(
        "evaluate",
        json!({"expression": "account.entries", "frameId": frame["id"]}),
    );
    assert!(told["result"].to_string().contains("length 4"), "{told}");
    let parts = client.get(
        "variables",
        json!({"variablesReference": told["variablesReference"]}),
    );
    let parts = parts["variables"].as_array().expect("parts");
    let values: Vec<&str> = parts.iter().filter_map(|p| p["value"].as_str()).collect();
    assert_eq!(values, ["1", "4", "9", "16"]);
    client.end();
    // What can't be recorded is said.
    let mut client = Client::start(&place).met();
    let why = client.refused("launch", json!({"program": "/no/such/program"}));
    assert!(why.contains("/no/such/program"), "{why}");
    let why = client.refused("launch", json!({"program": "a", "trace": "b"}));
    assert!(why.contains("either"), "{why}");
    client.end();
}

#[test]
fn what_is_no_message_is_answered_or_ends_the_session() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let mut client = Client::start(&place);
    let why = client.refused("threads", json!({}));
    assert!(why.contains("initialize comes before"), "{why}");
    for body in [
        "{\"a",
        "[]",
        "{\"seq\": 3, \"type\": \"request\"}",
        "\u{0}",
        "{\"type\":\"response\"}",
    ] {
        client.say(&framed(body));
        let answer = client.hear();
        assert_eq!(answer["success"], false, "{body}: {answer}");
    }
    let mut client = client.met();
    let why = client.refused("threads", json!({}));
    assert!(why.contains("launch or attach comes before"), "{why}");
    client.get("attach", json!({"trace": trace.dir}));
    client.event("initialized");
    let why = client.refused("no_such_request", json!({}));
    assert!(why.contains("no_such_request"), "{why}");
    // Arguments of all kinds of wrong types.
    let wrong = [
        ("stackTrace", json!({"threadId": "one"})),
        ("stackTrace", json!({"threadId": 99_999_999})),
        ("variables", json!({"variablesReference": -1})),
        ("variables", json!({"variablesReference": i64::MAX})),
        ("scopes", json!({"frameId": i64::MIN})),
        ("setBreakpoints", json!([])),
        ("goto", json!({"targetId": 0})),
        (
            "readMemory",
            json!({"memoryReference": "0x10", "count": -5}),
        ),
        (
            "disassemble",
            json!({"memoryReference": "0xffffffffffffffff", "offset": 1, "instructionCount": 1}),
        ),
        (
            "disassemble",
            json!({"memoryReference": "0x10", "instructionCount": i64::MAX}),
        ),
        ("next", Value::Null),
        ("evaluate", json!({"expression": "1 +"})),
        ("evaluate", json!({"expression": "\n-exec-run\n"})),
        (
            "reprise/goto",
            json!({"event": 1_000_000_000_000_000_000u64 * 10}),
        ),
    ];
    for (command, arguments) in wrong {
        client.refused(command, arguments);
    }
    let told = client.get(
        "readMemory",
        json!({"memoryReference": "0x10", "count": 16}),
    );
    assert_eq!(told["unreadableBytes"], 16, "{told}");
    client.get("threads", json!({}));
    // There is no telling where the next message begins.
    client.say("POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut server = client.server.take().expect("a server");
    let status = common::ended(&mut server);
    assert!(status.success(), "{status}");
}

/// Whoever goes in the midst of anything leaves nothing behind: `common` sees to that at the end of each test.
#[test]
fn a_client_that_vanishes_leaves_nothing() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_many"));
    let file = source("debugged_many.c");
    let counts = line_of(&file, "here it counts");
    type Act<'a> = (&'a str, Box<dyn Fn(&mut Client) + 'a>);
    let acts: [Act; 4] = [
        ("before anything", Box::new(|_| {})),
        (
            "while it starts",
            Box::new(|c| {
                c.ask("attach", json!({"trace": trace.dir}));
            }),
        ),
        (
            "while it runs",
            Box::new(|c| {
                c.get("attach", json!({"trace": trace.dir}));
                c.breakpoints(&file, json!([{"line": counts, "condition": "counter < 0"}]));
                c.ask("configurationDone", json!({}));
            }),
        ),
        (
            "while a logpoint is asked",
            Box::new(|c| {
                c.get("attach", json!({"trace": trace.dir}));
                c.breakpoints(&file, json!([{"line": counts, "logMessage": "{counter}"}]));
            }),
        ),
    ];
    for (when, act) in acts {
        let mut client = Client::start(&place).met();
        act(&mut client);
        drop(client.to.take());
        let mut server = client.server.take().expect("a server");
        let status = common::ended(&mut server);
        assert!(status.success(), "{when}: {status}");
        // What was started has been told to end, and does.
        let begun = Instant::now();
        while names_in_a_command_line(&trace.dir) {
            assert!(
                begun.elapsed() < hang_limit(),
                "{when}: somebody still replays"
            );
            std::thread::yield_now();
        }
    }
    // One that is recording: the program ends with it.
    let mut client = Client::start(&place).met();
    client.ask(
        "launch",
        json!({"program": "/bin/sh", "args": ["-c", "echo begins; while :; do sleep 1; done"]}),
    );
    client.console_until("begins");
    drop(client.to.take());
    let mut server = client.server.take().expect("a server");
    let status = common::ended(&mut server);
    assert!(status.success(), "{status}");
}

/// Is there a process that was told of this trace?
fn names_in_a_command_line(dir: &Path) -> bool {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut lines = all.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    let dir = dir.as_os_str().as_encoded_bytes();
    lines.any(|line| line.windows(dir.len()).any(|part| part == dir))
}

#[test]
fn a_server_serves_two_clients_that_show_its_token_and_nobody_else() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let mut server = place
        .reprise(["dap", "--port", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("its output"))
        .read_line(&mut line)
        .expect("a line");
    let told: Value = serde_json::from_str(&line).expect("JSON");
    let port = told["port"].as_u64().expect("a port") as u16;
    let token = told["token"].as_str().expect("a token").to_string();
    assert!(token.len() >= 32, "{told}");
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let other = stream.try_clone().expect("its other end");
        Client::over(None, Box::new(stream), other)
    };
    for wrong in [
        json!({}),
        json!({"token": ""}),
        json!({"token": "0".repeat(token.len())}),
        json!({"token": 1}),
    ] {
        let mut client = connect().met();
        let mut wanted = wrong.clone();
        wanted["trace"] = json!(trace.dir);
        let why = client.refused("attach", wanted);
        assert!(why.contains("token"), "{wrong}: {why}");
        // And that was that.
        let gone = client.from.recv_timeout(hang_limit());
        let is_gone = matches!(gone, Err(RecvTimeoutError::Disconnected));
        assert!(is_gone, "{wrong}: {gone:?}");
    }
    let file = source("debugged.c");
    let grows = line_of(&file, "here it grows");
    let spoils = line_of(&file, "here it is spoiled");
    let mut both: Vec<Client> = [grows, spoils]
        .map(|line| {
            let mut client = connect().met();
            client.get("attach", json!({"trace": trace.dir, "token": token}));
            client.event("initialized");
            client.breakpoints(&file, json!([{"line": line}]));
            client
        })
        .into();
    for client in &mut both {
        client.ask("configurationDone", json!({}));
    }
    for (client, line) in both.iter_mut().zip([grows, spoils]) {
        let stop = client.event("stopped");
        assert_eq!(client.newest(&stop["threadId"])["line"], line);
    }
    for client in both {
        client.end();
    }
    server.kill().expect("ended");
    let _ = server.wait();
}

#[test]
fn a_hundred_thousand_results_are_told() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_many"));
    let file = source("debugged_many.c");
    let counts = line_of(&file, "here it counts");
    let mut client = Client::at(&place, &trace.dir, json!({}));
    client.breakpoints(
        &file,
        json!([{"line": counts, "logMessage": "at {counter}"}]),
    );
    let text = client.console_until("at 99999\n");
    assert!(
        text.contains("100000 hits (of the first 100000 visits)"),
        "{}",
        &text[..200]
    );
    assert_eq!(
        text.lines().filter(|l| l.contains(": at ")).count(),
        100_000
    );
    // And so many parts of one value, of which as many are told as fit.
    client.breakpoints(&file, json!([{"line": line_of(&file, "here it is full")}]));
    client.get("configurationDone", json!({}));
    let stop = client.event("stopped");
    let frame = client.newest(&stop["threadId"]);
    let told = client.get(
        "evaluate",
        json!({"expression": "many", "frameId": frame["id"]}),
    );
    let stretches = client.get(
        "variables",
        json!({"variablesReference": told["variablesReference"]}),
    );
    let stretches = stretches["variables"].as_array().expect("parts");
    assert_eq!(stretches.len(), 110);
    assert_eq!(stretches[99]["name"], "[99000..99999]");
    let parts = client.get(
        "variables",
        json!({"variablesReference": stretches[99]["variablesReference"]}),
    );
    let parts = parts["variables"].as_array().expect("parts");
    assert_eq!(parts.len(), 1000);
    assert_eq!(
        (&parts[999]["name"], &parts[999]["value"]),
        (&json!("[99999]"), &json!("99999"))
    );
    client.end();
}

/// A client that nobody here wrote: that of the protocol's own authors, for tests of adapters (scripts/setup-tests.sh).
#[test]
fn the_protocols_own_client_goes_forward_and_back_in_three_languages() {
    let client = top().join("target/dap-client");
    if !client
        .join("node_modules/@vscode/debugadapter-testsupport")
        .exists()
    {
        return skip(
            "there is no @vscode/debugadapter-testsupport (scripts/setup-tests.sh installs it)",
        );
    }
    let place = Workplace::new();
    let mut command = Command::new("node");
    place.settle(&mut command);
    command
        .arg(top().join("tests/dap/client.js"))
        .arg(common::REPRISE)
        .arg(client)
        .arg(top().join("tests/guests"))
        .args(["debugged_cpp", "debugged_rust", "debugged_go"].map(built));
    let run = common::run(&mut command, None);
    assert!(run.status.success(), "{}", run.describe());
    assert!(run.text().ends_with("Go is well\n"), "{}", run.describe());
}
