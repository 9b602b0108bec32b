//! `replay -d`: sessions of gdb on recordings, driven by scripts.

use crate::common;

use common::debugging::recorded;
use common::gdb::{assert_said, said, session};
use common::{run, Guest, Outcome, Workplace};
use std::path::Path;
use std::process::Command;

guests! { debugged, debugged_conditions, debugged_cpp }

// What goes the same way under every engine: see `common/debugging.rs`, and `debug_order.rs`.
sessions! { debugging, &[];
    a_session_stops_at_breakpoints_and_shows_the_source,
    steps_go_over_gates,
    every_change_of_a_watched_variable_is_told,
    a_crash_is_shown_where_it_happens,
    an_abort_is_shown_in_its_call,
    who_spoiled_a_variable_is_found_in_one_go,
    every_way_back_leads_where_the_way_forward_came_from,
    backward_stops_at_breakpoints_of_other_threads_and_at_the_beginning,
    one_goes_to_an_event_forward_and_back,
    a_program_writes_its_output_once_however_often_it_is_replayed,
    threads_and_containers_of_cpp_are_shown,
    what_can_not_be_debugged_is_said,
    a_first_thread_that_has_ended_holds_up_nobody,
    a_replay_can_not_be_changed,
    all_threads_are_printed_where_they_were,
    a_write_that_led_here_is_taken_back,
    a_condition_that_does_not_hold_stops_nobody,
    a_condition_is_looked_for_backward,
    a_condition_that_can_not_be_tested_is_told,
    a_condition_holds_where_no_stub_can_be,
    a_condition_at_a_call_is_compiled,
}

/// A server for any debugger, and its port.
fn server(place: &Workplace, dir: &Path) -> (std::process::Child, u16) {
    use std::io::{BufRead, BufReader};
    let mut command = place.reprise(["replay", "-d", "--gdb-port", "0"]);
    command.arg(dir).stdout(std::process::Stdio::null());
    let mut server = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("a server");
    let mut lines = BufReader::new(server.stderr.take().expect("its errors")).lines();
    let line = lines.next().expect("a line").expect("text");
    let port = line.rsplit(':').next().and_then(|p| p.trim().parse().ok());
    (server, port.expect("a port"))
}

#[test]
fn a_server_outlives_nonsense_and_ends_with_its_connection() {
    use std::io::{Read, Write};
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let (mut server, port) = server(&place, &trace.dir);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    // A packet of no known kind, one that asks for memory that isn't there, two that are not whole; then a question that is answered.
    stream
        .write_all(b"$jnonsense:;#48$mffffffffffffffff,8#31+$m#6d$qSupported#37$qSupported:xmlRegisters=i386#c1")
        .expect("sent");
    let mut said = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&said).contains("PacketSize=") {
        stream.read_exact(&mut byte).expect("an answer");
        said.push(byte[0]);
    }
    drop(stream);
    let status = common::ended(&mut server);
    assert!(status.success(), "{status}");
}

/// What a user without rights connects to a port is not read, also when he has gone before anybody looks.
#[test]
fn a_server_turns_others_away() {
    // SAFETY: plain call.
    if unsafe { libc::geteuid() } != 0 {
        return common::skip("only root can be somebody else");
    }
    let place = Workplace::new();
    let trace = recorded(&place, None, &[]);
    let (mut server, port) = server(&place, &trace.dir);
    for stays in ["cat <&3", ":"] {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo '$k#6b' >&3; {stays}");
        let args = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "bash",
            "-c",
        ];
        let mut other = Command::new("setpriv");
        let other = run(other.args(args).arg(script), None);
        assert_eq!(other.text(), "", "{}", other.describe());
    }
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let mut answer = [0; 16];
    std::io::Write::write_all(&mut stream, b"$qSupported#37").expect("sent");
    let n = std::io::Read::read(&mut stream, &mut answer).expect("an answer");
    assert!(n > 0, "the server lives");
    drop(stream);
    let status = common::ended(&mut server);
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_ends_when_its_debugger_goes_while_the_program_runs() {
    use std::io::Write;
    let place = Workplace::new();
    let trace = place.record(&Guest::new("cut_counter").args(["3"]));
    let (mut server, port) = server(&place, &trace.dir);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    // Who has gone before he is looked at can't be known, and is turned away.
    stream.write_all(b"$qSupported#37").expect("sent");
    std::io::Read::read_exact(&mut stream, &mut [0]).expect("an answer");
    stream.write_all(b"$c#63").expect("sent");
    drop(stream);
    let status = common::ended(&mut server);
    assert!(status.success(), "{status}");
}

#[test]
fn cuts_and_hand_offs_are_crossed_forward_and_back() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("cut_counter-O0").args(["1"]));
    assert!(place.info(&trace.dir).counter("cuts") > 0, "no cut");
    let run = session(
        &place,
        &trace.dir,
        &["--at", "end"],
        &[
            "break body",
            "reverse-continue",
            "reverse-continue",
            "reverse-continue",
            "delete",
            "continue",
            "reverse-stepi",
        ],
    );
    let hits = run.text().matches("hit Breakpoint 1, body").count();
    assert_eq!(hits, 2, "{}", said(&run));
    let end = "No more reverse-execution history";
    assert_said(&run, &["hit Breakpoint 1", "hit Breakpoint 1", end, end]);
}

#[test]
fn a_child_of_the_program_goes_on_by_itself() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("fork_wait").ends(Outcome::Any));
    let run = session(
        &place,
        &trace.dir,
        &[],
        &["break main", "continue", "continue", "when"],
    );
    assert_said(
        &run,
        &[
            "Breakpoint 1, main",
            "No more reverse-execution history",
            "event ",
        ],
    );
}
