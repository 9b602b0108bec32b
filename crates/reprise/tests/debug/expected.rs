//! What people who know gdb expect of any program: symbols of all libraries, thread-local variables, pretty printers, `run`, Ctrl-C, signals,
//! caught system calls, and the way to a panic.

use crate::common;

use common::debugging::recorded;
use common::gdb::{assert_said, assert_session, said, session};
use common::order::ORDER;
use common::{built, run, Guest, Outcome, Recording, Workplace, REPRISE};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a compiler.
fn compile(command: &mut Command) {
    let out = command.output().expect("a compiler");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{command:?}: {text}");
}

/// A program in DIR/bin with a library in DIR/lib, which it finds by `$ORIGIN/../lib`, built by this compiler.
fn with_library(place: &Workplace, compiler: &str) -> std::path::PathBuf {
    let dir = place.fresh_dir("installed");
    for part in ["bin", "lib"] {
        std::fs::create_dir(dir.join(part)).expect("a directory");
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/origin");
    let (library, program) = (dir.join("lib/libcounted.so"), dir.join("bin/program"));
    let mut command = Command::new(compiler);
    command.args(["-g", "-O0", "-fPIC", "-shared", "-o"]);
    compile(command.arg(&library).arg(sources.join("counted.c")));
    let mut command = Command::new(compiler);
    command.args(["-g", "-O0", "-pthread", "-o"]).arg(&program);
    command.arg(sources.join("program.c")).arg(&library);
    compile(command.arg("-Wl,-rpath,$ORIGIN/../lib"));
    program
}

fn recorded_program(place: &Workplace, program: &Path, flags: &[&str]) -> Recording {
    let mut guest = Guest::new("hello");
    guest.program = program.to_path_buf();
    place.record_with(&guest, flags)
}

/// Each thread has its own values, forward and back.
fn thread_locals_are_shown(compiler: &str, errno: &str, flags: &[&str]) {
    let place = Workplace::new();
    let program = with_library(&place, compiler);
    let trace = recorded_program(&place, &program, flags);
    let print_errno = format!("print {errno}");
    let commands = [
        "break seen",
        "continue",
        "print own",
        "print counted",
        &print_errno,
        "thread apply all print own * 1000 + counted",
        "continue",
        "print own",
        "print counted",
        &print_errno,
        "reverse-continue",
        "print own",
        "print counted",
        &print_errno,
        "info sharedlibrary libcounted",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(
        &run,
        &[
            "hit Breakpoint 1, seen (number=10)",
            "$1 = 110\n",
            "$2 = 15\n",
            "$3 = 10\n",
            "= 110015\n",
            "= 7006\n",
            "hit Breakpoint 1, seen (number=20)",
            "= 120\n",
            "= 26\n",
            "= 20\n",
            "hit Breakpoint 1, seen (number=10)",
            "= 110\n",
            "= 15\n",
            "= 10\n",
            "Yes",
            "/lib/libcounted.so",
        ],
    );
    let text = said(&run);
    assert!(!text.contains("warning:"), "{text}");
}

#[test]
fn thread_local_variables_of_glibc_are_shown() {
    thread_locals_are_shown("gcc", "errno", &[]);
}

#[test]
fn thread_local_variables_are_shown_of_a_recording_by_order() {
    thread_locals_are_shown("gcc", "errno", &ORDER);
}

/// musl has no variable of this name.
#[test]
fn thread_local_variables_of_musl_are_shown() {
    thread_locals_are_shown("musl-gcc", "number", &[]);
}

#[test]
fn errno_needs_no_debugging_information() {
    let place = Workplace::new();
    let program = with_library(&place, "gcc");
    let trace = recorded_program(&place, &program, &[]);
    let commands = ["break seen", "continue", "print errno", "print (int)errno"];
    let none = ["-iex", "set debug-file-directory /nonexistent"];
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" replay -d \"$@\" 2>&1", REPRISE]);
    place.settle(&mut command);
    command
        .arg(&trace.dir)
        .args(["--", "-nx", "-batch"])
        .args(none);
    for line in commands {
        command.args(["-ex", line]);
    }
    let run = run(&mut command, None);
    assert_said(&run, &["seen (number=10)", "$1 = 10\n", "$2 = 10\n"]);
}

#[test]
fn a_static_program_has_thread_local_variables() {
    let place = Workplace::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/origin");
    for compiler in ["gcc", "musl-gcc"] {
        let program = place.fresh("static");
        let mut command = Command::new(compiler);
        command.args(["-g", "-O0", "-pthread", "-static", "-o"]);
        command.arg(&program).arg(sources.join("program.c"));
        compile(command.arg(sources.join("counted.c")));
        let trace = recorded_program(&place, &program, &[]);
        let commands = ["break seen", "continue", "print own * 1000 + counted"];
        let more = ["continue", "print own * 1000 + counted"];
        let run = session(&place, &trace.dir, &[], &[&commands[..], &more].concat());
        let wanted = ["(number=10)", "= 110015\n", "(number=20)", "= 120026\n"];
        assert_said(&run, &wanted);
    }
}

#[test]
fn containers_of_cpp_are_shown_by_the_librarys_own_script() {
    assert_session(
        &Guest::new("debugged_cpp"),
        &[],
        &[
            "break Account::add if amount == 9",
            "continue",
            "print this->entries",
        ],
        &["= std::vector of length 2, capacity 2 = {1, 4}"],
    );
}

/// gdb finds it beside the library, by the name that it had when it was recorded, and trusts it as ever.
#[test]
fn a_script_beside_a_library_is_loaded_if_it_is_trusted() {
    let place = Workplace::new();
    let program = with_library(&place, "gcc");
    let dir = program
        .parent()
        .and_then(Path::parent)
        .expect("a directory");
    let script = dir.join("lib/libcounted.so-gdb.py");
    std::fs::write(
        &script,
        "import gdb\ngdb.write('the script of a library\\n')\n",
    )
    .expect("a script");
    let trace = recorded_program(&place, &program, &[]);
    for trusted in [true, false] {
        let mut command = place.reprise(["replay", "-d"]);
        command.arg(&trace.dir).args(["--", "-nx", "-batch"]);
        if trusted {
            let trust = format!("add-auto-load-safe-path {}", dir.display());
            command.arg("-iex").arg(trust);
        }
        command.args(["-ex", "break seen", "-ex", "continue"]);
        let run = run(&mut command, None);
        let loaded = run.text().contains("the script of a library");
        assert_eq!(loaded, trusted, "{}", run.describe());
    }
}

#[test]
fn run_and_start_lead_to_the_beginning() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let commands = [
        "run",
        "when",
        "break deposit",
        "run",
        "start",
        "delete",
        "r",
        "when",
    ];
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    let wanted = [
        "event 0 of",
        "hit Breakpoint 1, deposit",
        "Temporary breakpoint 2, main",
        "event 0 of",
    ];
    assert_said(&run, &wanted);
}

#[test]
fn a_signal_is_shown_as_the_kernel_told_of_it() {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), &[]);
    let commands = [
        "print $_siginfo.si_signo",
        "print $_siginfo._sifields._sigfault.si_addr",
        "print $_exitcode",
        "reverse-stepi",
        "print $_siginfo.si_signo",
    ];
    let run = session(&place, &trace.dir, &["--at", "crash"], &commands);
    assert_said(
        &run,
        &["$1 = 11\n", "$2 = (void *) 0x", "$3 = void", "Unable to"],
    );
    let trace = recorded(&place, Some("abort"), &[]);
    let commands = [
        "continue",
        "print $_siginfo.si_code",
        "print $_siginfo.si_signo",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(&run, &["received signal SIGABRT", "$1 = -6\n", "$2 = 6\n"]);
}

#[test]
fn a_core_file_has_the_signal() {
    for (how, signal) in [("abort", "SIGABRT"), ("crash", "SIGSEGV")] {
        let place = Workplace::new();
        let trace = recorded(&place, Some(how), &[]);
        let core = place.fresh("core");
        let mut command = place.reprise(["core", "crash"]);
        let made = run(command.arg(&trace.dir).arg("-o").arg(&core), None);
        assert!(made.status.success(), "{}", made.describe());
        // All of the program's memory is in it.
        let mode = std::fs::metadata(&core)
            .expect("the core")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut command = Command::new("gdb");
        place.settle(&mut command);
        command.args(["-nx", "-batch", "-ex", "print $_siginfo.si_signo"]);
        let shown = run(command.arg(built("debugged")).arg(&core), None);
        let number = if how == "abort" { "$1 = 6" } else { "$1 = 11" };
        assert_said(
            &shown,
            &[&format!("terminated with signal {signal}"), number],
        );
    }
}

#[test]
fn the_process_of_a_tree_that_crashed_is_shown() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("crash_of_one").ends(Outcome::Any));
    let backtrace = run(place.reprise(["backtrace"]).arg(&trace.dir), None);
    assert!(backtrace.status.success(), "{}", backtrace.describe());
    assert_said(&backtrace, &["(stopped)", "#0  ", "work at "]);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "crash"],
        &["print $_siginfo.si_signo"],
    );
    assert_said(&run, &["reprise: this is process ", "$1 = 11"]);
}

#[test]
fn a_system_call_is_caught_when_it_comes_back() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let commands = [
        "catch syscall write",
        "break deposit if amount == 2",
        "continue",
        "delete 2",
        "continue",
        "print $rax",
        "continue",
        "reverse-continue",
        "print $rax",
        "reverse-continue",
        "delete",
        "catch syscall",
        "continue",
        "when",
        "continue",
        "when",
        "reverse-continue",
        "when",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(
        &run,
        &[
            "hit Breakpoint 2, deposit",
            "Catchpoint 1 (returned from syscall write)",
            "$1 = 9\n",
            "No more reverse-execution history",
            "Catchpoint 1 (returned from syscall write)",
            "$2 = 9\n",
            "No more reverse-execution history",
            "Catchpoint 3 (returned from syscall ",
            "Catchpoint 3 (returned from syscall ",
            "Catchpoint 3 (returned from syscall ",
        ],
    );
    let text = said(&run);
    let places: Vec<&str> = text.lines().filter(|l| l.starts_with("event ")).collect();
    assert!(places[0] == places[2] && places[0] != places[1], "{text}");
}

#[test]
fn system_calls_of_a_recording_by_order_are_refused_with_a_sentence() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &ORDER);
    let run = session(&place, &trace.dir, &[], &["catch syscall write"]);
    assert_said(
        &run,
        &["can't be caught in a recording by the engine order"],
    );
    assert!(!said(&run).contains("Catchpoint"), "{}", said(&run));
}

#[test]
fn one_goes_to_a_panic_of_rust_of_go_and_of_cpp() {
    let panics = [
        ("rust_panics", "rust_panic", "rust_panics::main"),
        ("go_panics", "runtime.gopanic", "main.main.func"),
        ("cpp_terminate", "__cxa_throw", "operator()"),
    ];
    for (guest, function, place_of_it) in panics {
        built(guest);
        let guest = Guest::new(guest).ends(Outcome::Any);
        assert_session(
            &guest,
            &["--at", "panic"],
            &["backtrace"],
            &["#0  ", function, place_of_it],
        );
    }
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let run = session(&place, &trace.dir, &["--at", "panic"], &[]);
    assert!(
        !run.status.success() && said(&run).contains("panic"),
        "{}",
        said(&run)
    );
}

#[test]
fn a_checkpoint_is_at_the_event_at_which_it_was_made() {
    for flags in [&[][..], &ORDER] {
        let place = Workplace::new();
        let trace = recorded(&place, None, flags);
        let commands = [
            "break deposit",
            "continue",
            "continue",
            "when",
            "checkpoint",
        ];
        let run = session(
            &place,
            &trace.dir,
            &[],
            &[&commands[..], &["info checkpoints"]].concat(),
        );
        let text = said(&run);
        let mut lines = text.lines();
        let when = lines
            .find_map(|l| l.strip_prefix("event "))
            .expect("a place");
        let event = when.split(' ').next().expect("a number");
        let wanted = format!("checkpoint 1 is at event {event}");
        assert_eq!(text.matches(&wanted).count(), 2, "{text}");
    }
}

/// gdb at its prompt, with all that it says.
struct Prompt {
    gdb: std::process::Child,
    said: String,
}

impl Prompt {
    fn start(place: &Workplace, flags: &[&str], dir: &Path) -> Prompt {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" replay -d \"$@\" 2>&1", REPRISE]);
        place.settle(&mut command);
        command.args(flags).arg(dir).args(["--", "-nx"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("LC_ALL", "C").env("DEBUGINFOD_URLS", "");
        let gdb = command.process_group(0).spawn().expect("a session");
        Prompt {
            gdb,
            said: String::new(),
        }
    }

    fn tell(&mut self, commands: &str) {
        let input = self.gdb.stdin.as_mut().expect("its input");
        input.write_all(commands.as_bytes()).expect("a command");
    }

    /// Waits until it says one of these.
    fn hear(&mut self, wanted: &[&str]) {
        let output = self.gdb.stdout.as_mut().expect("its output");
        let from = self.said.len();
        let mut part = [0; 4096];
        while !wanted.iter().any(|w| self.said[from..].contains(w)) {
            let n = output.read(&mut part).expect("what it says");
            assert!(n > 0, "{wanted:?} was not said: {}", self.said);
            self.said += &String::from_utf8_lossy(&part[..n]);
        }
    }

    /// As a terminal does it.
    fn interrupt(&self) {
        // SAFETY: a plain call; the group is the session's own.
        unsafe { libc::kill(-(self.gdb.id() as i32), libc::SIGINT) };
    }
}

#[test]
fn a_way_back_is_interrupted_and_leads_home() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_long"));
    let mut prompt = Prompt::start(&place, &["--at", "end"], &trace.dir);
    prompt.tell("when\nbreak never\nreverse-continue\n");
    // How far it is, after a second: the way takes as much of the processor as the recording did.
    let over = "No more reverse-execution";
    prompt.hear(&["reprise: at event ", over]);
    assert!(!prompt.said.contains(over), "{}", prompt.said);
    prompt.interrupt();
    prompt.hear(&["received signal SIGINT", over, "Quit"]);
    assert!(
        prompt.said.contains("received signal SIGINT"),
        "{}",
        prompt.said
    );
    prompt.tell("when\nquit\n");
    prompt.hear(&["Detaching", "Ending remote"]);
    let status = common::ended(&mut prompt.gdb);
    assert!(status.success(), "{status}: {}", prompt.said);
    let text = &prompt.said;
    assert!(text.contains("received signal SIGINT"), "{text}");
    assert!(!text.contains("No more reverse-execution"), "{text}");
    // Where it began, or, on a machine on which that would take long, somewhere before, which is said.
    let places: Vec<&str> = text
        .lines()
        .filter_map(|l| l.split("event ").nth(1).filter(|_| !l.contains("reprise")))
        .filter_map(|l| l.split(' ').next())
        .collect();
    let is_home = places.len() == 2 && places[0] == places[1];
    assert!(
        is_home || text.contains("the way back was given up"),
        "{text}"
    );
}
