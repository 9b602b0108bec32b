//! What README.md and docs/EXAMPLES.md tell people to type is typed here: every command of every block, in its order, in one directory, with
//! programs of the names that stand there (`tests/documents`). The first commands of the README are run on a fresh clone.
//!
//! A block is what is indented by four spaces. In README.md each of its lines is a command; in docs/EXAMPLES.md those are that begin with `$`, and
//! what follows as `(gdb)` is typed into the command before; other lines show what is printed. What only its reader knows (ids of processes,
//! names) is put in from the tables below.
#![allow(clippy::print_stdout)]

mod common;

use common::{hang_limit, knob, run, top, Workplace, REPRISE};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The README's command for tests, which is what `.ci/run` ends with: this test is a part of it.
const TESTS: &str = "scripts/test.sh";

/// A command as it stands in a document.
struct Typed {
    /// What it is under.
    heading: String,
    command: String,
    /// What is typed into it.
    input: String,
}

/// All commands of a document.
fn commands(document: &str) -> Vec<Typed> {
    let text = std::fs::read_to_string(top().join(document)).expect("a document");
    let marked = document != "README.md";
    let (mut all, mut heading) = (Vec::<Typed>::new(), String::new());
    let mut in_block = false;
    for line in text.lines() {
        let Some(line) = line.strip_prefix("    ") else {
            if let Some(title) = line.strip_prefix("## ") {
                heading = title.into();
            }
            in_block = false;
            continue;
        };
        let command = match marked {
            true => line.strip_prefix("$ "),
            false => Some(line),
        };
        if let Some(command) = command {
            all.push(Typed {
                heading: heading.clone(),
                command: command.into(),
                input: String::new(),
            });
        } else if let Some(typed) = line.strip_prefix("(gdb) ") {
            // A block of its own goes on in the session of the one before.
            if !in_block && !all.last().is_some_and(|t| t.input.is_empty()) {
                let before = all.last().map(|t| t.command.clone()).unwrap_or_default();
                all.push(Typed {
                    heading: heading.clone(),
                    command: before,
                    input: String::new(),
                });
            }
            let into = all.last_mut().expect("a command before");
            writeln!(into.input, "{typed}").expect("a string");
        }
        in_block = true;
    }
    all
}

/// Without what is said behind it.
fn bare(command: &str) -> &str {
    command.split("  #").next().unwrap_or(command).trim()
}

/// What is done before the commands under a heading, as a person would have done it: programs built, something recorded.
const BEFORE: [(&str, &str); 12] = [
    ("Use", "make -s; launch R reprise record -q --keep 60s -- ./waits; launch W ./waits"),
    ("As a picture", "reprise pack -q -o bug.reprise; rm -f *.gz"),
    ("One process of many", "make -s; rm -f program"),
    (
        "With gdb, forward and backward",
        "make -s; reprise record -q -- ./server --port 8080 > /dev/null",
    ),
    (
        "Questions to a recording",
        "make -s; for day in monday tuesday; do reprise record -q -o $day -- ./server > /dev/null; done; reprise record -q -- ./server > /dev/null",
    ),
    ("Is the replay really the same?", "reprise record -q -- ./program > /dev/null"),
    ("A test that fails now and then", "make -s"),
    ("It hangs now, and nobody records it", "make -s; launch A ./waits; launch B ./waits; launch C ./waits"),
    ("To someone else", "rm -f bug.reprise; reprise record -q -- ./program > /dev/null"),
    ("Programs with atomics of their own, on all cores", "rm -f server program job simulation test-suite; python3 words.py"),
    (
        "A print more, in a run that is over",
        "rm -f server reprise.h; make -s server; reprise record -q --engine order -- ./server > /dev/null; rm -f reprise.h",
    ),
    ("The same run every time", "make -s"),
];

/// What stands there for something that only the reader knows, and where it is from.
const MEANT: [(&str, &str, &str); 13] = [
    ("Use", "reprise snapshot PID", "reprise snapshot $R"),
    ("Use", "reprise attach PID", "reprise attach $W"),
    ("Use", "reprise stop PID", "reprise stop $R"),
    ("As a picture", "--port 8080", "--port 0"),
    ("As a picture", "trace.json NAME", "trace.json python3-0"),
    ("Which process did it?", "4711", "$(child)"),
    ("One process of many", "21207", "$(child)"),
    (
        "With gdb, forward and backward",
        "--pid 1234",
        "--pid $(first)",
    ),
    (
        "With gdb, forward and backward",
        "--gdb-port 1234",
        "--gdb-port $PORT",
    ),
    (
        "With gdb, forward and backward",
        "localhost:1234",
        "localhost:$PORT",
    ),
    (
        "It hangs now, and nobody records it",
        "attach 4711",
        "attach $A",
    ),
    (
        "It hangs now, and nobody records it",
        "attach -b 4711",
        "attach -b $B",
    ),
    (
        "It hangs now, and nobody records it",
        "5min 4711",
        "5min $C",
    ),
];

/// Commands that go on until the user has seen enough.
const ENDED_BY_CTRL_C: [&str; 5] = [
    "reprise view",
    "reprise view bug.reprise --no-browser --port 0",
    "reprise attach $W",
    "reprise attach $A",
    "reprise attach --keep 5min $C",
];

/// Statuses other than 0: what a program ended with, and what depends on what was found.
const STATUSES: [(&str, &[i32]); 15] = [
    ("reprise record -- ./server --port 8080", &[139]),
    ("reprise replay", &[0, 1, 3, 139]),
    ("reprise replay --print", &[0]),
    ("reprise replay -d", &[0]),
    ("reprise diff", &[0, 1]),
    ("reprise replay --with", &[0]),
    ("reprise replay bug.reprise", &[0, 1]),
    ("reprise record --chaos --until-failure", &[1]),
    ("reprise record -- sh -c", &[3]),
    ("reprise races", &[0, 66]),
    ("reprise replay --learn", &[0, 125]),
    ("reprise replay --pid", &[0, 1, 2, 139]),
    ("reprise view", &[0, 130]),
    ("reprise attach", &[0]),
    ("reprise attach -b", &[0]),
];

/// What no command may say, whatever its status.
const WRONG: [&str; 10] = [
    "internal error",
    "panicked",
    "No symbol \"",
    "Undefined command",
    "syntax error",
    "command not found",
    "unexpected argument",
    "Remote connection closed",
    "Connection refused",
    "cannot resolve name",
];

/// Functions of the shell that types it all.
const SHELL: &str = r#"
set -u
# launch NAME COMMAND...: a process that goes on; returns when it has said its first line. Its id is in the variable NAME.
launch() {
    local name=$1 pipe=$SCRATCH/pipe.$1
    shift
    mkfifo "$pipe"
    "$@" > "$pipe" 2>&1 &
    printf -v "$name" %s $!
    exec {open}< "$pipe"
    read -r -u $open first
    rm "$pipe"
}
# until_ctrl_c COMMAND...: ends it as Ctrl-C does, when it has said its first line.
until_ctrl_c() {
    local pipe=$SCRATCH/pipe.c status
    rm -f "$pipe"; mkfifo "$pipe"
    set -m
    "$@" > "$pipe" 2>&1 &
    set +m
    local group=$! open
    exec {open}< "$pipe"
    read -r -u $open first
    echo "$first"
    kill -INT -- -$group
    wait $group
    status=$?
    cat <&$open
    return $status
}
# in_background COMMAND...: returns when it has said its first line.
in_background() { launch BACKGROUND "$@"; }
# Ids of processes of the latest trace: the first one; one of its children.
first() { reprise ps --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["pid"])'; }
child() { reprise ps --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[-1]["pid"])'; }
"#;

/// Quotes for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// How a command is typed, its status left in `$?`.
fn as_typed(typed: &Typed) -> String {
    let mut command = bare(&typed.command).to_string();
    for (heading, from, to) in MEANT {
        if heading == typed.heading {
            command = command.replace(from, to);
        }
    }
    if ENDED_BY_CTRL_C.contains(&command.as_str()) {
        return format!("until_ctrl_c {command}");
    }
    match command.strip_suffix('&') {
        Some(command) => format!("in_background {command}"),
        None => command,
    }
}

/// Statuses that are right for a command: those of the longest beginning that is known.
fn statuses(command: &str) -> &'static [i32] {
    let known = STATUSES.iter().filter(|(c, _)| command.starts_with(c));
    let longest = known.max_by_key(|(c, _)| c.len());
    longest.map_or(&[0], |(_, statuses)| statuses)
}

/// A directory with all that the documents name.
fn scene(place: &Workplace) -> PathBuf {
    let dir = place.path().join("here");
    copy(&top().join("tests/documents"), &dir);
    dir
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).expect("a copy")),
        }
    }
}

/// Types all commands of a document but those that are left out; fails with every one that didn't do what it says.
fn type_all(document: &str, left_out: &[&str]) {
    let place = Workplace::new();
    let dir = scene(&place);
    let all = commands(document);
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = port.expect("a free port").port().to_string();
    let mut script = String::from(SHELL);
    let (mut heading, mut skipped) = ("", Vec::new());
    let out = |n: usize| place.path().join(format!("out-{n}"));
    let status = |n: usize| place.path().join(format!("status-{n}"));
    for (n, typed) in all.iter().enumerate() {
        if left_out.contains(&bare(&typed.command)) {
            skipped.push(bare(&typed.command));
            continue;
        }
        if typed.heading != heading {
            heading = &typed.heading;
            for (_, before) in BEFORE.iter().filter(|b| b.0 == heading) {
                writeln!(script, "{before}").expect("a string");
            }
        }
        let input = place.path().join(format!("in-{n}"));
        std::fs::write(&input, &typed.input).expect("a file");
        writeln!(
            script,
            "{{ {}; }} < {} > {} 2>&1\necho $? > {}",
            as_typed(typed).replace("$PORT", &port),
            quoted(&input.to_string_lossy()),
            quoted(&out(n).to_string_lossy()),
            quoted(&status(n).to_string_lossy()),
        )
        .expect("a string");
    }
    script += "kill $(jobs -p) 2> /dev/null\nexit 0\n";
    assert_eq!(skipped, left_out, "what is left out stands there");
    let file = place.path().join("script");
    std::fs::write(&file, &script).expect("a script");
    let path = format!(
        "{}:{}",
        Path::new(REPRISE).parent().expect("a directory").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = Command::new("timeout");
    // Many commands, each of which may take as long as one run.
    shell.args(["-k", "10", &(hang_limit().as_secs() * 5).to_string()]);
    shell.arg("bash").arg(&file);
    place.settle(&mut shell);
    shell.current_dir(&dir).env("PATH", path);
    shell.env("SCRATCH", place.path());
    shell.env("XDG_CACHE_HOME", place.path().join("cache"));
    shell.env_remove("DISPLAY").env("PAGER", "cat");
    let done = shell.output().expect("a shell");
    let mut faults = String::new();
    let mut count = 0;
    for (n, typed) in all.iter().enumerate() {
        if left_out.contains(&bare(&typed.command)) {
            continue;
        }
        count += 1;
        let said = std::fs::read(out(n)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let ended = std::fs::read_to_string(status(n)).unwrap_or_default();
        let ended: Option<i32> = ended.trim().parse().ok();
        let right = statuses(&as_typed(typed).replace("until_ctrl_c ", ""));
        let wrong = WRONG.iter().find(|w| said.contains(**w));
        if !ended.is_some_and(|s| right.contains(&s)) || wrong.is_some() {
            let (heading, command) = (&typed.heading, &typed.command);
            let end: String = said
                .lines()
                .rev()
                .take(12)
                .collect::<Vec<_>>()
                .join("\n      ");
            writeln!(
                faults,
                "{heading}: $ {command}\n    ended with {ended:?} instead of {right:?}, and said (last line first)\n      {end}"
            )
            .expect("a string");
        }
    }
    println!("{document}: {count} commands typed, left out: {skipped:?}");
    assert!(
        faults.is_empty(),
        "{document}:\n{faults}\nshell: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Commands of the README that are run by [`a_fresh_clone`], or are what runs this test.
fn first_ones() -> Vec<String> {
    let all = commands("README.md");
    let of_project = |c: &str| c.starts_with("cargo ") || c.starts_with("scripts/");
    let bare = all.iter().map(|t| bare(&t.command).to_string());
    bare.filter(|c| of_project(c)).collect()
}

#[test]
fn commands_of_the_readme() {
    let first = first_ones();
    assert!(first.len() <= 3, "{first:?}");
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    type_all("README.md", &first);
}

#[test]
fn commands_of_the_examples() {
    type_all("docs/EXAMPLES.md", &[]);
}

/// What continuous integration runs is what the README says, word by word.
#[test]
fn continuous_integration_runs_the_first_two() {
    let script = std::fs::read_to_string(top().join(".ci/run")).expect(".ci/run");
    let first = first_ones();
    assert_eq!(first[1], TESTS);
    let mut from = 0;
    for command in &first[..2] {
        let at = script[from..].find(command.as_str());
        from +=
            at.unwrap_or_else(|| panic!(".ci/run does not run `{command}`, or not in its order"));
    }
}

/// The first command on a fresh clone, with nothing built: it builds all, and demonstrates. The runtime is built in its quick way here;
/// `.ci/run` begins with the same command as it stands; where it did that on a fresh clone of this very commit, that was the test.
#[test]
fn a_fresh_clone() {
    if !top().join(".git").exists() {
        return common::skip("this is no clone, and can't be cloned");
    }
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "rev-parse", "HEAD"]);
    let commit = run(git.current_dir(top()), None).text();
    if std::env::var("REPRISE_FRESH_CLONE").is_ok_and(|built| built == commit.trim()) {
        println!(".ci/run has run the first command on a fresh clone of {commit}");
        return;
    }
    let place = Workplace::new();
    let clone = place.path().join("clone");
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "clone", "-q", "--no-hardlinks"]);
    git.arg(top()).arg(&clone);
    let cloned = run(&mut git, None);
    assert!(cloned.status.success(), "{}", cloned.describe());
    for command in first_ones().iter().filter(|c| *c != TESTS) {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("REPRISE_QUICK_IMAGE", "1");
        shell.current_dir(&clone);
        for inherited in [
            "CARGO_TARGET_DIR",
            "CARGO_MANIFEST_DIR",
            "CARGO_BUILD_TARGET_DIR",
            "RUSTFLAGS",
        ] {
            shell.env_remove(inherited);
        }
        let out = shell.output().expect("a shell");
        let (said, status): (_, ExitStatus) = (String::from_utf8_lossy(&out.stdout), out.status);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(status.success(), "{command}: {status}\n{said}\n{errors}");
        if command.ends_with("demo") {
            assert!(said.contains("10 of 10 replays"), "{said}\n{errors}");
        }
    }
    assert!(knob("REPRISE_TEST_KEEP", 0) == 1 || clone.join("target/release/reprise").exists());
}
