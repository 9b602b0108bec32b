//! `--engine order` and process trees: processes run at the same time, on all processors.

mod common;

use common::{assert_same, check_times, message, run, system_program};
use common::{Guest, Outcome, Recording, Workplace};

const ORDER: [&str; 2] = ["--engine", "order"];

/// Records each guest and replays it twice.
fn each(names: &[&str]) {
    let mut failures = Vec::new();
    for name in names {
        let attempt = std::panic::catch_unwind(|| {
            check_times(&Guest::new(name), &ORDER, 1, 2);
        });
        if let Err(why) = attempt {
            failures.push(format!("{name}: {}", message(&*why)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn forks() {
    each(&[
        "fork_wait",
        "fork_tree",
        "fork_chain",
        "fork_deaths",
        "crash_of_one",
        "orphans",
        "clone_by_syscall",
        "clone_pidfd",
        "daemon_service",
        "signals_across_fork",
    ]);
}

#[test]
fn waits_and_ends() {
    each(&[
        "wait_forms",
        "child_signals",
        "subreaper",
        "parent_death_signal",
        "exit_ways",
        "pidfds",
    ]);
}

/// What other threads do at the moment of a fork is in the trace.
#[test]
fn forks_while_threads_run() {
    each(&["fork_from_threads", "atfork_handlers"]);
}

#[test]
fn programs() {
    each(&[
        "vfork_spawn",
        "vfork_failures",
        "spawn_attributes",
        "exec_again",
        "exec_errors",
        "exec_by_descriptor",
        "exec_kept_and_lost",
        "exec_races",
        "exit_at_new_site",
    ]);
}

#[test]
fn pipes_groups_and_terminals() {
    each(&[
        "process_pipes",
        "append_races",
        "others_change_blocking",
        "job_control",
        "groups_and_sessions",
        "orphaned_group",
        "terminal_job_control",
        "signal_groups",
        "stopped_anywhere",
    ]);
}

#[test]
fn what_processes_share() {
    each(&[
        "robust_between_processes",
        "locks_between_processes",
        "atomics_between_processes",
        "semaphore_undo",
        "ipc_tables",
    ]);
}

#[test]
fn ends_that_are_told() {
    for (name, how) in [
        ("fork_outlives", Outcome::Exit(5)),
        ("abort_handled", Outcome::Signal(libc::SIGABRT)),
    ] {
        check_times(&Guest::new(name).ends(how), &ORDER, 1, 2);
    }
}

/// Records a command of a real program and replays it twice.
fn recorded(place: &Workplace, program: &str, args: &[&str]) -> Recording {
    let guest = Guest::program(system_program(program)).args(args);
    let recording = place.record_with(&guest, &ORDER);
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    recording
}

#[test]
fn pipelines() {
    let place = Workplace::new();
    let r = recorded(
        &place,
        "sh",
        &["-c", "seq 1000 | sort -n | tail -3; echo $?"],
    );
    assert_eq!(r.run.text(), "998\n999\n1000\n0\n", "{}", r.run.describe());
}

#[test]
fn a_shell_with_pipelines_traps_and_background_jobs() {
    let place = Workplace::new();
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
    let place = Workplace::new();
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
    let built = run(&mut std::process::Command::new(dir.join("program")), None);
    assert_eq!(built.text(), "40\n");
}

#[test]
fn git_commits_and_clones() {
    let place = Workplace::new();
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
    let r = recorded(&Workplace::new(), "python3", &["-c", script]);
    assert!(
        r.run
            .text()
            .ends_with("300000\n[Errno 2] No such file or directory: '/nowhere'\n"),
        "{}",
        r.run.describe()
    );
}
