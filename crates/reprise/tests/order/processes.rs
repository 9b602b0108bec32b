//! `--engine order` and process trees: processes run at the same time, on all processors.

use crate::common;

use common::order::{check, ORDER};
use common::tampered::tampered;
use common::{assert_same, check_times, run, system_program};
use common::{Guest, Outcome, Recording, Workplace};
use reprise_abi::event::{Event, NO_SLOT};
use reprise_trace::SUMMARY_FILE;

tests! {
    check;
    forks {
        fork_wait,
        fork_tree,
        fork_chain,
        fork_deaths,
        fork_killed_at_once,
        crash_of_one,
        orphans,
        clone_by_syscall,
        clone_pidfd,
        daemon_service,
        signals_across_fork,
    }
    waits_and_ends {
        wait_forms,
        child_signals,
        subreaper,
        parent_death_signal,
        exit_ways,
        pidfds,
    }
    // What other threads do at the moment of a fork is in the trace.
    forks_while_threads_run {
        fork_from_threads,
        fork_with_threads,
        atfork_handlers,
    }
    programs {
        vfork_spawn,
        vfork_failures,
        spawn_attributes,
        exec_again,
        exec_errors,
        exec_by_descriptor,
        exec_kept_and_lost,
        exit_at_new_site,
        names_that_are_no_text,
    }
    pipes_groups_and_terminals {
        process_pipes,
        append_races,
        others_change_blocking,
        job_control,
        groups_and_sessions,
        orphaned_group,
        terminal_job_control,
        signal_groups,
        stopped_anywhere,
    }
    what_processes_share {
        robust_between_processes,
        robust_of_the_dead,
        locks_between_processes,
        atomics_between_processes,
        semaphore_undo,
        ipc_tables,
    }
}

/// Who execs ends what others have just begun: a child of which nothing is recorded, for one, that has its turn when only the one who execs
/// could go on.
#[test]
fn execs_against_all() {
    check_times(&Guest::new("exec_races"), &ORDER, 4, 1);
    check_times(&Guest::new("exec_killed"), &ORDER, 1, 2);
}

/// A fork that had begun when its thread was killed is in the trace, but maybe no child ever was. Here nothing is known of any child, so that each
/// has to make room for the next one.
#[test]
fn children_of_which_nothing_is_known() {
    let place = Workplace::new();
    let recording = place.record_with(&Guest::new("fork_wait"), &ORDER);
    let of_children = |bytes: &[u8]| {
        let e = Event::parse(bytes).expect("an event");
        e.header.slot != 0 && e.header.slot != NO_SLOT
    };
    let dir = tampered(&place, &recording.dir, |_, event| !of_children(event));
    // It says which stamps nobody has drawn.
    std::fs::remove_file(dir.join(SUMMARY_FILE)).expect("a summary");
    for order in ["partial", "total"] {
        let replay = place.replay_with(&dir, &["--order", order]);
        assert_same(&recording.run, &replay);
    }
}

/// Who is joined is found by his thread pointer, which his vfork child has as well: libc never comes to look at his word before he has ended, which
/// nobody would order.
#[test]
fn a_join_beside_a_vfork_child() {
    let place = Workplace::new();
    for _ in 0..3 {
        let recording = place.record_with(&Guest::new("join_beside_vfork"), &ORDER);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        let dump = run(
            place.reprise(["dump", "--thread", "0"]).arg(&recording.dir),
            None,
        );
        let text = dump.text();
        assert!(text.contains("nanosleep("), "{text}");
        assert!(!text.contains(" futex("), "{text}");
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

/// Shared memory that is changed by plain loads and stores, or by atomics at different addresses, or looked at by plain loads: that has no
/// recorded order, and the recording says so. In full size it is tried how far that goes.
#[test]
fn races_in_shared_memory_are_told() {
    let place = Workplace::new();
    let guest = Guest::new("processes_at_work").args(["2", "20000000"]);
    let said = place.record_with(&guest, &ORDER).run.said();
    assert!(said.contains("plain loads and stores"), "{said}");
    if common::full() {
        for name in [
            // Plain races, on purpose.
            "fork_shared_memory",
            "processes_at_work",
            "killed_while_sharing",
            "worker_tree",
            "sysv_shm_threads",
            // The kernel writes to shared memory while others look at it.
            "buffers_seen_by_others",
            // Each process has the memory at an address of its own.
            "shared_files",
            "futex_between_processes",
        ] {
            check(name, &[]);
        }
    }
}

/// Whoever is killed in the middle of an atomic operation keeps nobody else from going on.
#[test]
fn deaths_in_the_middle_of_atomics() {
    let place = Workplace::new();
    for _ in 0..3 {
        let recording = place.record_with(&Guest::new("killed_among_atomics"), &ORDER);
        let run = &recording.run;
        assert_eq!(run.text(), "6 were killed\n", "{}", run.describe());
        // Whether the last instruction of each was made can't be known.
        if common::full() {
            assert_same(run, &place.replay(&recording.dir));
        }
    }
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

/// A pool's threads take the interpreter's lock from each other, whose wish for it is a plain load (as in `programs::python_with_four_threads`).
#[test]
fn python_multiprocessing() {
    let script = "
import multiprocessing, sys
sys.setswitchinterval(3600)
def square(x): return x * x
if __name__ == '__main__':
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
";
    let r = recorded(&Workplace::new(), "python3", &["-c", script]);
    assert_eq!(r.run.text(), "328350\n300\n", "{}", r.run.describe());
}

#[test]
fn two_hundred_programs() {
    let script = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; echo $i";
    let r = recorded(&Workplace::new(), "sh", &["-c", script]);
    assert_eq!(r.run.text(), "200\n", "{}", r.run.describe());
}

/// The memory of processes that share none is the same to the last byte.
#[test]
fn states_are_hashed() {
    for name in ["fork_tree", "process_pipes", "vfork_spawn", "exec_again"] {
        let place = Workplace::new();
        let flags = ["--engine", "order", "--checksum=20"];
        let recording = place.record_with(&Guest::new(name), &flags);
        let verified = place.verify(&recording.dir);
        assert!(verified.status.success(), "{}", verified.describe());
        let info = place.info(&recording.dir);
        assert!(info.kind("hash") > 3, "{name}: {}", info.0);
        assert!(info.counter("hashed") > 10_000, "{name}: {}", info.0);
    }
}

#[test]
fn single_processes_are_listed_dumped_and_replayed() {
    let place = Workplace::new();
    let script = "(echo one; exit 3) & wait $!; echo $?; /bin/echo two; :";
    let recording = place.record_with(
        &Guest::program(system_program("bash")).args(["-c", script]),
        &ORDER,
    );
    assert_eq!(recording.run.text(), "one\n3\ntwo\n");
    let dir = recording.dir.to_str().expect("a path");
    let text = |args: &[&str]| run(&mut place.reprise(args), None).text();
    let list = text(&["ps", dir]);
    let pid = |what: &str| {
        let line = list.lines().find(|l| l.contains(what));
        let first = line.and_then(|l| l.split_whitespace().next());
        first
            .unwrap_or_else(|| panic!("no {what}:\n{list}"))
            .to_string()
    };
    let (child, echo) = (pid("exited with 3"), pid("  /bin/echo two"));
    assert_eq!(text(&["replay", "--pid", &child, dir]), "one\n");
    assert_eq!(text(&["replay", "--pid", &echo, dir]), "two\n");
    let events = text(&["dump", "--pid", &echo, dir]);
    assert!(
        events.contains("/bin/echo") && !events.contains("exited with 3"),
        "{events}"
    );
}
