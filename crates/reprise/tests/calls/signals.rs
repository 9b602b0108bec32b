//! Signals, timers, faults and crashes.

use crate::common;

use common::{check, check_times, Guest, Info};

guests! {
    signal_at_gate, signal_mask, signal_altstack, signal_restart, signal_interrupted_sleep, signal_nested,
    signal_waiting, signal_longjmp, signal_fp_environment, inherited_signals, signal_timers, signal_between_threads, signal_faults, signal_sigsys, signal_alarm_in_calls, crash,
}

guests! {
    interrupted_calls, signal_codes, signal_stacks, signals_across_fork, signals_to_threads, signal_after_atomic, signal_in_unlogged, place_never_found,
}

fn assert_in_code(facts: &[(String, Vec<Info>)]) {
    for (label, infos) in facts {
        assert!(
            infos.iter().any(|i| i.counter("signals_in_code") > 0),
            "{label}: no signal was delivered in mid-code"
        );
    }
}

#[test]
fn signal_in_loop() {
    assert_in_code(&check("signal_in_loop"));
}

#[test]
fn signal_context() {
    assert_in_code(&check("signal_context"));
}

#[test]
fn signal_registers() {
    assert_in_code(&check("signal_registers"));
}

#[test]
fn signals_at_gates_are_counted() {
    let infos = check_times(&Guest::new("signal_at_gate"), &[], 1, 1);
    assert!(
        infos[0].counter("signals_at_gates") >= 1000,
        "{}",
        infos[0].0
    );
}

#[test]
fn a_crash_leaves_a_complete_trace() {
    for (way, signal) in [("segv", 11), ("fpe", 8), ("abort", 6), ("thread", 11)] {
        let infos = check_times(
            &Guest::new("crash")
                .args([way])
                .ends(common::Outcome::Signal(signal)),
            &[],
            1,
            1,
        );
        let status = infos[0].0["wait_status"]
            .as_i64()
            .unwrap_or_else(|| panic!("no wait_status in {}", infos[0].0));
        assert_eq!(
            status & 0x7f,
            i64::from(signal),
            "the trace knows another end: {}",
            infos[0].0
        );
        assert_eq!(
            infos[0].kind("end"),
            1,
            "no end in the trace: {}",
            infos[0].0
        );
    }
}

/// What nohup, shells and service managers hand on at exec: ignored and blocked signals, SIGPIPE among them.
#[test]
fn ignored_and_blocked_signals_are_inherited() {
    use std::os::unix::process::CommandExt;
    let place = common::Workplace::new();
    let guest = Guest::new("inherited_signals");
    let inherit = |command: &mut std::process::Command| {
        // SAFETY: calls that are safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGUSR1);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                Ok(())
            });
        }
    };
    let mut native = std::process::Command::new(&guest.program);
    inherit(&mut native);
    let native = common::run(&mut native, None);
    let text = String::from_utf8_lossy(&native.stdout).into_owned();
    for line in ["Broken pipe", "Hangup", "User defined signal 1"] {
        assert!(text.contains(line), "{}", native.describe());
    }
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, &[], &dir);
    inherit(&mut command);
    let recorded = common::run(&mut command, None);
    common::assert_same(&native, &recorded);
    common::assert_same(&recorded, &place.replay(&dir));
}
