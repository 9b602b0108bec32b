//! A lock's owner whose number the agent doesn't know yet, as that of a new process in a namespace of processes: no damage as long as there is a thread
//! that no slot names, and damage as soon as there is none.

use reprise_abi::session::{request, slot_state};
use reprise_agent::damage::Damage;
use reprise_agent::members::Members;
use reprise_launch::SharedSession;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const MAPS: &str = "REPRISE_TEST_MAPS";
/// Longer than the agent looks at the lock of an owner that is certainly dead, by far shorter than at one that may live.
const A_WHILE: Duration = Duration::from_millis(2500);

/// The other process: has the session's memory mapped until its input ends. As a test of its own it does nothing.
#[test]
fn maps_the_session() {
    let Ok(fd) = std::env::var(MAPS) else {
        return;
    };
    let fd = fd.parse().expect("a number");
    // SAFETY: a new mapping of an inherited descriptor.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    std::io::stdout().write_all(b"mapped\n").expect("a reader");
    let _ = std::io::stdin().read(&mut [0]);
}

/// A process of another program than the agent's that has the session's memory.
fn start(shared: &SharedSession, dir: &std::path::Path) -> Child {
    let program = dir.join("other");
    std::fs::copy("/proc/self/exe", &program).expect("a copy");
    // SAFETY: a duplicate without FD_CLOEXEC, for the child.
    let fd = unsafe { libc::dup(shared.fd()) };
    let mut child = Command::new(program)
        .args([
            "--exact",
            "maps_the_session",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(MAPS, fd.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process");
    let mut said = String::new();
    while !said.contains("mapped") {
        let mut some = [0; 64];
        let n = child
            .stdout
            .as_mut()
            .expect("a pipe")
            .read(&mut some)
            .expect("its output");
        assert_ne!(n, 0, "it ended: {said}");
        said.push_str(&String::from_utf8_lossy(&some[..n]));
    }
    child
}

/// What is found when it is looked for so long.
fn found(
    shared: &SharedSession,
    damage: &mut Damage,
    members: &Members,
    limit: Duration,
) -> Option<&'static str> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(what) = damage.look(shared, members) {
            return Some(what);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn who_is_not_known_yet_may_live() {
    let shared = SharedSession::create().expect("a session");
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = start(&shared, dir.path());
    let s = shared.session();
    let owner = shared.slot(0);
    owner.state.store(slot_state::IN_CALL, SeqCst);
    s.slots_used.store(1, SeqCst);
    s.request.taken.store(1, SeqCst);
    s.request.kind.store(request::FIND, SeqCst);
    let (mut damage, members) = (Damage::new(&shared), Members::default());
    assert_eq!(found(&shared, &mut damage, &members, A_WHILE), None);

    // Now all threads that there are have slots, and the owner is none of them.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("its threads");
    let tids = tasks.map(|task| task.expect("a thread").file_name());
    let tids: Vec<u32> = tids
        .map(|tid| tid.to_str().expect("a number").parse().expect("a number"))
        .collect();
    for (i, tid) in tids.iter().enumerate() {
        let slot = shared.slot(i + 1);
        slot.kernel_pid.store(child.id(), SeqCst);
        slot.kernel_tid.store(*tid, SeqCst);
        slot.state.store(slot_state::IN_CALL, SeqCst);
    }
    s.slots_used.store(tids.len() as u32 + 1, SeqCst);
    let said = found(&shared, &mut damage, &members, A_WHILE);
    assert_eq!(said, Some("a lock that nobody has"));

    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
}
