//! Process trees: forks, execs, deaths, what processes share, and real programs made of many.

use crate::common;

use common::{assert_same, check_times, run, system_program, Guest, Outcome, Recording, Workplace};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

guests! {
    fork_wait, fork_tree, fork_shared_memory, fork_deaths, fork_with_threads, fork_outlives, vfork_spawn, exec_again, shared_files,
    process_pipes, processes_at_work, job_control, fork_killed_at_once, clone_pidfd, crash_of_one, orphans, others_change_blocking,
    buffers_seen_by_others, clone_by_syscall,
}

// Forks, and what a parent learns.
guests! {
    fork_chain, fork_from_threads, atfork_handlers, vfork_failures, join_beside_vfork, spawn_attributes, wait_forms, child_signals, subreaper,
    parent_death_signal, daemon_service,
}

// Programs that are executed, and ends.
guests! { exec_errors, exec_by_descriptor, exec_kept_and_lost, exec_killed, exec_races, exit_ways, exit_at_new_site, abort_handled, names_that_are_no_text }

/// Paths are bytes: that of the program, of what it maps, of its directory.
#[test]
fn programs_whose_paths_are_no_text() {
    let place = Workplace::new();
    let dir = place.path().join(OsStr::from_bytes(b"d\xfcr"));
    std::fs::create_dir(&dir).expect("a directory");
    // What its children do is not in a recording by `det`.
    for (engine, name) in [
        ("serial", "names_that_are_no_text"),
        ("order", "names_that_are_no_text"),
        ("det", "det_racey"),
    ] {
        let program = dir.join(OsStr::from_bytes(b"p\xffg"));
        std::fs::copy(&Guest::new(name).program, &program).expect("copies the guest");
        let guest = Guest::program(program);
        let recording = place.record_with(&guest, &["--engine", engine]);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
        let info = run(
            &mut place.reprise([OsStr::new("info"), recording.dir.as_os_str()]),
            None,
        );
        assert!(info.status.success(), "{}", info.describe());
    }
}

// Groups, sessions and terminals.
guests! { groups_and_sessions, orphaned_group, terminal_job_control, signal_groups, stopped_anywhere }

// Locks in memory that processes share.
guests! { robust_between_processes, robust_whole_process, robust_mapped_later, locks_between_processes, futex_between_processes }

/// Records a command of a real program and replays it twice.
fn recorded(place: &Workplace, program: &str, args: &[&str]) -> Recording {
    let guest = Guest::program(system_program(program)).args(args);
    let recording = place.record(&guest);
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    recording
}

fn shell(script: &str) -> Recording {
    recorded(&Workplace::new(), "bash", &["-c", script])
}

#[test]
fn pipelines_and_substitutions() {
    let r = shell("seq 2000 | grep 7 | sort -rn | awk '{s+=$1} END {print s, NR}'; echo $(ls / | wc -l) >/dev/null; echo \"${PIPESTATUS[@]}\"");
    assert_eq!(r.run.text(), "586684 542\n0\n", "{}", r.run.describe());
}

#[test]
fn here_documents_traps_and_background_jobs() {
    let r = shell(
        "trap 'echo caught' USR1; trap 'echo bye' EXIT
         cat <<END | tr a-z A-Z
here
END
         for i in 1 2 3; do (sleep 0.0$i; exit $i) & done; wait %2; echo $?; wait; kill -USR1 $$
         timeout 0.1 sleep 60; echo $?; (kill -9 $BASHPID); echo $?; (exit 125); echo $?",
    );
    assert_eq!(
        r.run.text(),
        "HERE\n2\ncaught\n124\n137\n125\nbye\n",
        "{}",
        r.run.describe()
    );
}

#[test]
fn a_thousand_children_one_after_another() {
    let r = shell("i=0; while [ $i -lt 1000 ]; do (exit 3); s=$?; i=$((i+1)); done; echo $s $i");
    assert_eq!(r.run.text(), "3 1000\n", "{}", r.run.describe());
}

#[test]
fn two_hundred_programs() {
    let r = recorded(
        &Workplace::new(),
        "sh",
        &[
            "-c",
            "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; echo $i",
        ],
    );
    assert_eq!(r.run.text(), "200\n", "{}", r.run.describe());
}

#[test]
fn python_subprocesses_and_multiprocessing() {
    let script = "
import multiprocessing, subprocess
def square(x): return x * x
if __name__ == '__main__':
    print(subprocess.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True))
    p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(len(p.communicate(b'x' * 300000)[0]))
    multiprocessing.set_start_method('fork')
    with multiprocessing.Pool(3) as pool: print(sum(pool.map(square, range(100))))
    counter = multiprocessing.Value('i', 0)
    def add():
        for _ in range(100):
            with counter.get_lock(): counter.value += 1
    all = [multiprocessing.Process(target=add) for _ in range(3)]
    for p in all: p.start()
    for p in all: p.join()
    print(counter.value)
    try: subprocess.run(['/nowhere'])
    except FileNotFoundError as e: print(e)
";
    let r = recorded(&Workplace::new(), "python3", &["-c", script]);
    assert!(
        r.run
            .text()
            .ends_with("300000\n328350\n300\n[Errno 2] No such file or directory: '/nowhere'\n"),
        "{}",
        r.run.describe()
    );
}

#[test]
fn make_and_a_compiler() {
    let place = Workplace::new();
    let dir = place.fresh_dir("project");
    for i in 0..8 {
        std::fs::write(
            dir.join(format!("f{i}.c")),
            format!("int f{i}(int x) {{ return x * {i}; }}\n"),
        )
        .expect("a source");
    }
    std::fs::write(
        dir.join("main.c"),
        "#include <stdio.h>\nint f7(int);\nint main(void) { printf(\"%d\\n\", f7(6)); }\n",
    )
    .expect("a source");
    std::fs::write(
        dir.join("Makefile"),
        "OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\tgcc -o $@ $(OBJECTS)\n%.o: %.c\n\tgcc -O1 -c $<\n",
    )
    .expect("a makefile");
    let path = dir.to_str().expect("a path").to_string();
    let r = recorded(&place, "make", &["-s", "-j4", "-C", &path]);
    assert!(r.run.status.success(), "{}", r.run.describe());
    let built = run(&mut std::process::Command::new(dir.join("program")), None);
    assert_eq!(built.text(), "42\n");
}

#[test]
fn git_in_a_repository() {
    let place = Workplace::new();
    let dir = place.fresh_dir("git");
    let script = "set -e; cd \"$0\"; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
        git init -q a; cd a; git config user.email a@example.org; git config user.name A
        for i in 1 2 3; do seq $i 50 >f$i; git add .; git commit -qm \"c$i\"; done
        cd ..; git clone -q a b; cd b; git gc -q; git fsck 2>&1; git log --format=%s";
    let r = recorded(&place, "sh", &["-c", script, dir.to_str().expect("a path")]);
    assert!(
        r.run.text().ends_with("c3\nc2\nc1\n"),
        "{}",
        r.run.describe()
    );
}

#[test]
fn processes_take_turns_in_the_middle_of_code() {
    let guest = Guest::new("processes_at_work").args(["3", "300000000"]);
    let infos = check_times(&guest, &[], 1, 1);
    assert!(
        infos[0].counter("cuts") > 0,
        "nothing was cut: {}",
        infos[0].0
    );
    assert_eq!(infos[0].kind("process-start"), 3, "{}", infos[0].0);
    assert_eq!(infos[0].kind("process-end"), 4, "{}", infos[0].0);
}

#[test]
fn chaos_in_process_trees() {
    for (name, outcome) in [
        ("fork_shared_memory", Outcome::Exit(0)),
        ("fork_deaths", Outcome::Exit(0)),
        ("fork_with_threads", Outcome::Exit(0)),
        ("vfork_spawn", Outcome::Exit(0)),
        ("process_pipes", Outcome::Exit(0)),
    ] {
        check_times(&Guest::new(name).ends(outcome), &["--chaos"], 2, 1);
    }
}

#[test]
fn ps_and_dump_know_the_processes() {
    let place = Workplace::new();
    let r = recorded(
        &place,
        "sh",
        &["-c", "echo one | cat; sh -c 'kill -9 $$'; exit 4"],
    );
    let ps = |json: bool| {
        let mut command = place.reprise(["ps"]);
        command.args(json.then_some("--json")).arg(&r.dir);
        let out = run(&mut command, None);
        assert!(out.status.success(), "{}", out.describe());
        out.text()
    };
    let list: serde_json::Value = serde_json::from_str(&ps(true)).expect("JSON");
    let list = list.as_array().expect("a list");
    let ended = |status: i64| list.iter().filter(|p| p["wait_status"] == status).count();
    assert_eq!(
        (list.len(), ended(9), ended(4 << 8), ended(0)),
        (4, 1, 1, 2),
        "{list:?}"
    );
    let cat = list.iter().find(|p| p["argv"][0] == "cat").expect("cat");
    assert_eq!(cat["parent"], list[0]["pid"]);
    assert!(
        ps(false).lines().any(|l| l.contains("killed by SIGKILL")),
        "{}",
        ps(false)
    );
    let mut command = place.reprise(["dump", "--json", "--pid"]);
    command.arg(cat["pid"].to_string()).arg(&r.dir);
    let dump = run(&mut command, None);
    let kinds: Vec<String> = dump
        .text()
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON")["kind"].to_string())
        .collect();
    assert_eq!(kinds.first().map(String::as_str), Some("\"process-start\""));
    assert_eq!(kinds.last().map(String::as_str), Some("\"process-end\""));
    assert!(kinds.contains(&"\"exec\"".to_string()));
}

/// The runtime gets into a program that was started by a process without the rights of whoever records.
#[test]
fn exec_as_another_user() {
    // SAFETY: asks for an id.
    if unsafe { libc::getuid() } != 0 {
        return common::skip("only root can become somebody else");
    }
    let r = recorded(
        &Workplace::new(),
        "setpriv",
        &[
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "sh",
            "-c",
            "id -u; id -g",
        ],
    );
    assert_eq!(r.run.text(), "65534\n65534\n", "{}", r.run.describe());
}
