//! Programs that a signal ends where they are: no handler, no gate.

use crate::common;

use common::leftovers::agent_of;
use common::{assert_same, check_times, Guest, Outcome, Running, Workplace};
use std::io::Read;

guests! { killed, killed_in_large_reads, killed_while_sharing }

#[test]
fn what_the_killed_wrote_is_logged_by_the_others() {
    let guest = Guest::new("killed_while_sharing").args(["alarm", "3"]);
    for info in check_times(&guest, &[], 2, 1) {
        assert!(info.kind("shared") > 0, "{}", info.0);
    }
}

#[test]
fn killed_within_an_event() {
    // How many have to be killed until that happens depends on the machine.
    for processes in ["10", "20", "40", "80", "160"] {
        let guest = Guest::new("killed_in_large_reads").args([processes]);
        if check_times(&guest, &[], 1, 1)[0].counter("torn_events") > 0 {
            return;
        }
    }
    panic!("nobody was killed within an event");
}

/// Records the guest, ends it from outside after its first words and `later`, replays it.
fn end_from_outside(way: &str, threads: u32, signal: i32, flags: &[&str], later: impl FnOnce()) {
    let place = Workplace::new();
    let guest = Guest::new("killed").args([way.to_string(), threads.to_string()]);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, flags, &dir);
    let ready = command
        .get_current_dir()
        .expect("a directory")
        .join("ready");
    let mut running = Running::start_reading(&mut command, None);
    let out = running.child.stdout.as_mut().expect("a pipe");
    let mut first = Vec::new();
    // Byte by byte: what comes later is for the collector.
    let mut byte = [0];
    while out.read(&mut byte).expect("its first line") == 1 && byte[0] != b'\n' {
        first.push(byte[0]);
    }
    let pid: i32 = String::from_utf8_lossy(&first)
        .parse()
        .expect("a process id");
    while !ready.exists() && running.child.try_wait().expect("wait").is_none() {
        std::thread::yield_now();
    }
    later();
    // SAFETY: a process that this test started, and that ends in no other way.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    let mut recorded = running.finish();
    first.push(b'\n');
    recorded.stdout.splice(0..0, first);
    assert!(
        Outcome::Signal(signal).fits(recorded.status),
        "{}",
        recorded.describe()
    );
    assert_same(&recorded, &place.replay(&dir));
}

#[test]
fn ended_from_outside() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT] {
        for threads in [1, 2, 5] {
            for way in ["outside", "asleep"] {
                end_from_outside(way, threads, signal, &[], || {});
            }
        }
    }
}

#[test]
fn ended_from_outside_after_a_while() {
    // How long it has run by then is left to chance: other work of different lengths.
    for i in 0..8u64 {
        let work = || {
            let mut x = i;
            for _ in 0..i * i * 4_000_000 {
                x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
            }
        };
        let flags: &[&str] = match i % 3 {
            0 => &[],
            1 => &["--chaos"],
            _ => &["--checksum=200"],
        };
        end_from_outside("outside", i as u32 % 4 + 1, libc::SIGTERM, flags, work);
    }
}

/// The agent is killed while a program waits: from then on nothing is recorded, and all goes on as it would. Programs are started,
/// processes are killed and found dead, and who computes makes room for others.
#[test]
fn the_program_goes_on_without_its_agent() {
    const SCRIPT: &str = "echo ready; until [ -e go ]; do :; done
        /bin/echo another program
        sh -c 'kill -9 $$'; echo killed: $?
        while :; do :; done & computes=$!
        /bin/echo beside it; kill -9 $computes; wait $computes; echo killed: $?";
    let place = Workplace::new();
    let guest = Guest::program(common::system_program("sh")).args(["-c", SCRIPT]);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, &[], &dir);
    let go = command.get_current_dir().expect("a directory").join("go");
    let mut running = Running::start_reading(&mut command, None);
    let out = running.child.stdout.as_mut().expect("a pipe");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("its first line");
    let agent = agent_of(running.pid());
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(agent, libc::SIGKILL) }, 0);
    std::fs::write(go, "").expect("a file");
    let run = running.finish();
    assert!(run.status.success(), "{}", run.describe());
    assert!(run.notes.contains("agent died"), "{}", run.describe());
    assert_eq!(
        run.text(),
        "another program\nkilled: 137\nbeside it\nkilled: 137\n",
        "{}",
        run.describe()
    );
}
