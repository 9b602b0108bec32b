//! `--engine order`: threads run on all processors, system calls are stamped, every thread has a ring of its own.
//!
//! Here are guests whose threads, if they have several, meet in system calls and in libc's functions of synchronisation; the kernels are
//! in `kernels.rs`.

mod common;

use common::{check_times, message, Guest};

/// Records each guest and replays it twice.
fn each(names: &[&str]) {
    let mut failures = Vec::new();
    for name in names {
        let attempt = std::panic::catch_unwind(|| {
            check_times(&Guest::new(name), &["--engine", "order"], 1, 2);
        });
        if let Err(why) = attempt {
            failures.push(format!("{name}: {}", message(&*why)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn calls() {
    each(&[
        "hello",
        "bad_descriptors",
        "bad_pointers",
        "big_output",
        "descriptors",
        "environment",
        "errno_results",
        "eventfds",
        "epoll_edges",
        "poll_states",
        "pipes",
        "tcp_loopback",
        "tcp_states",
        "udp_loopback",
        "unix_sockets",
        "vectors",
        "unknown_call",
    ]);
}

#[test]
fn files() {
    each(&[
        "directories",
        "file_times",
        "files_read_write",
        "copies_between_files",
        "sparse_files",
        "splices",
        "system_files",
    ]);
}

#[test]
fn memory() {
    each(&[
        "memory_anonymous",
        "memory_files",
        "memory_file_writes",
        "memory_mapped",
        "protections",
        "growing_stack",
        "sysv_shm",
        "message_queues",
        "generated_code",
    ]);
}

#[test]
fn signals_and_time() {
    each(&[
        "signal_at_gate",
        "signal_altstack",
        "signal_faults",
        "signal_nested",
        "signals_queued",
        "sleeps",
        "time_values",
        "timerfds",
        "instructions",
        "randomness",
    ]);
}

/// Only in full size: the engine is in the making, and not every replay of these is exact yet.
#[test]
fn threads() {
    if !common::full() {
        return;
    }
    each(&[
        "thread_create",
        "mutex_contention",
        "condition_variables",
        "rwlock_barrier_semaphore",
        "fork_from_threads",
        "exec_races",
    ]);
}

#[test]
fn the_end_of_a_program_that_is_killed() {
    let crash = Guest::new("crash").args(["abort"]);
    let place = common::Workplace::new();
    let recording = place.record_with(&crash, &["--engine", "order"]);
    assert!(
        !recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    common::assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn small_buffers() {
    for name in ["big_output", "files_read_write"] {
        let flags = ["--engine", "order", "--buffers", "small"];
        check_times(&Guest::new(name), &flags, 1, 1);
    }
}

#[test]
fn forks_and_ends() {
    each(&[
        "fork_wait",
        "fork_tree",
        "fork_chain",
        "fork_deaths",
        "crash_of_one",
        "orphans",
        "clone_by_syscall",
        "clone_pidfd",
        "wait_forms",
        "child_signals",
        "subreaper",
        "parent_death_signal",
        "daemon_service",
        "exit_ways",
        "signals_across_fork",
        "pidfds",
    ]);
}

#[test]
fn execs() {
    each(&[
        "vfork_spawn",
        "spawn_attributes",
        "exec_again",
        "exec_errors",
        "exec_by_descriptor",
        "exec_kept_and_lost",
        "exit_at_new_site",
    ]);
}

#[test]
fn what_processes_share() {
    each(&[
        "process_pipes",
        "append_races",
        "buffers_seen_by_others",
        "others_change_blocking",
        "robust_between_processes",
        "semaphore_undo",
        "ipc_tables",
        "job_control",
        "groups_and_sessions",
        "orphaned_group",
        "signal_groups",
    ]);
}

#[test]
fn ends_that_are_told() {
    for (name, how) in [
        ("fork_outlives", common::Outcome::Exit(5)),
        ("abort_handled", common::Outcome::Signal(6)),
    ] {
        check_times(&Guest::new(name).ends(how), &["--engine", "order"], 1, 2);
    }
}

/// Records a command of a real program and replays it twice.
fn recorded(place: &common::Workplace, program: &str, args: &[&str]) -> common::Recording {
    let guest = Guest::program(common::system_program(program)).args(args);
    let recording = place.record_with(&guest, &["--engine", "order"]);
    for _ in 0..2 {
        common::assert_same(&recording.run, &place.replay(&recording.dir));
    }
    recording
}

#[test]
fn a_shell_with_pipelines_traps_and_background_jobs() {
    let place = common::Workplace::new();
    let r = recorded(
        &place,
        "bash",
        &[
            "-c",
            "trap 'echo caught' USR1; trap 'echo bye' EXIT
             seq 2000 | grep 7 | sort -rn | awk '{s+=$1} END {print s, NR}'
             for i in 1 2 3; do (exit $i) & done; wait %2; echo $?; wait; kill -USR1 $$
             (kill -9 $BASHPID); echo $?; (exit 125); echo $?
             i=0; while [ $i -lt 50 ]; do /bin/true; (exit 3); s=$?; i=$((i+1)); done; echo $s $i",
        ],
    );
    assert_eq!(
        r.run.text(),
        "586684 542\n2\ncaught\n137\n125\n3 50\nbye\n",
        "{}",
        r.run.describe()
    );
}

#[test]
fn make_with_two_jobs() {
    let place = common::Workplace::new();
    let dir = place.fresh_dir("project");
    for i in 0..6 {
        let source = format!("int f{i}(int x) {{ return x * {i}; }}\n");
        std::fs::write(dir.join(format!("f{i}.c")), source).expect("a source");
    }
    let main = "#include <stdio.h>\nint f5(int);\nint main(void) { printf(\"%d\\n\", f5(8)); }\n";
    std::fs::write(dir.join("main.c"), main).expect("a source");
    std::fs::write(
        dir.join("Makefile"),
        "OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\tgcc -o $@ $(OBJECTS)\n%.o: %.c\n\tgcc -O1 -c $<\n",
    )
    .expect("a makefile");
    let path = dir.to_str().expect("a path");
    let r = recorded(&place, "make", &["-s", "-j2", "-C", path]);
    assert!(r.run.status.success(), "{}", r.run.describe());
    let built = common::run(&mut std::process::Command::new(dir.join("program")), None);
    assert_eq!(built.text(), "40\n");
}

#[test]
fn git_commits_and_clones() {
    let place = common::Workplace::new();
    let dir = place.fresh_dir("git");
    let script = "set -e; cd \"$0\"; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
        git init -q a; cd a; git config user.email a@example.org; git config user.name A
        for i in 1 2; do seq $i 50 >f$i; git add .; git commit -qm \"c$i\"; done
        cd ..; git clone -q a b; cd b; git fsck 2>&1; git log --format=%s";
    let r = recorded(&place, "sh", &["-c", script, dir.to_str().expect("a path")]);
    assert!(r.run.text().ends_with("c2\nc1\n"), "{}", r.run.describe());
}

#[test]
fn python_subprocesses() {
    let script = "
import subprocess
print(subprocess.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True))
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(len(p.communicate(b'x' * 300000)[0]))
try: subprocess.run(['/nowhere'])
except FileNotFoundError as e: print(e)
";
    let r = recorded(&common::Workplace::new(), "python3", &["-c", script]);
    assert!(
        r.run
            .text()
            .ends_with("300000\n[Errno 2] No such file or directory: '/nowhere'\n"),
        "{}",
        r.run.describe()
    );
}
