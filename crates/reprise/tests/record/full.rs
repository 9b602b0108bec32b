//! What ends a recording from outside: no room in the store or for the images of programs, too few descriptors, files that may not get larger, a
//! directory that somebody removes. Each ends it as `--on-full` says, with a trace that replays up to there and words about what is lost, or
//! isn't noticed at all.

use crate::common;

use common::{run, Run, Workplace, REPRISE};
use std::path::Path;
use std::process::Command;

/// A shell's command line, run by this user as root of a namespace of its own: it has none of root's rights over limits, and may mount.
fn namespace(place: &Workplace, script: &str, args: &[&str]) -> Run {
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "bash", "-c", script, REPRISE])
        .args(args);
    place.settle(&mut command);
    let out = run(&mut command, None);
    assert!(
        !out.said().contains("unshare:"),
        "this user can't make namespaces: {}",
        out.describe()
    );
    out
}

/// The trace replays to its end, which may be where the recording ended, and shows no more than the program did.
fn assert_prefix(recorded: &Run, replayed: &[u8], said: &str) {
    assert!(
        recorded.stdout.starts_with(replayed) && !said.contains("diverge"),
        "a replay that shows something else: {}\n{said}\n{}",
        String::from_utf8_lossy(replayed),
        recorded.describe()
    );
}

fn assert_replays(place: &Workplace, recorded: &Run, dir: &Path) {
    let replayed = place.replay(dir);
    assert_prefix(recorded, &replayed.stdout, &replayed.said());
}

/// Programs that map files and become other programs.
const WORK: &str =
    "for p in true ls cat date sort id head wc tr; do $p --version | head -1; done; exit 4";

/// Records [`WORK`] on a file system of this size, which holds the store as well, and replays it there; what the replay showed.
fn on_small_disk(place: &Workplace, size: &str, policy: &str) -> (Run, Vec<u8>) {
    let dir = place.fresh_dir("small");
    let recorded = place.fresh("recorded");
    let script = "mount -t tmpfs -o size=$1 none \"$2\" || exit 77; export REPRISE_TRACE_DIR=$2; \
                  \"$0\" record --on-full=$3 -o \"$2/t\" -- sh -c \"$4\" > \"$5\" 2> \"$5.said\"; code=$?; \
                  [ ! -e \"$2/t\" ] || \"$0\" replay \"$2/t\"; exit $code";
    let (dir, out) = (
        dir.to_str().expect("a name"),
        recorded.to_str().expect("a name"),
    );
    let mut run = namespace(place, script, &[size, dir, policy, WORK, out]);
    let shown = std::mem::take(&mut run.stdout);
    run.stdout = std::fs::read(&recorded).unwrap_or_default();
    // Which processes are missing differs with the size.
    let said = std::fs::read_to_string(recorded.with_extension("said"));
    run.notes.insert_str(0, &said.expect("what it said"));
    (run, shown)
}

#[test]
fn a_disk_too_small_for_what_is_kept() {
    let place = Workplace::new();
    let mut ended_early = 0;
    for size in ["4m", "5m", "6m", "7m", "9m"] {
        for policy in ["continue", "stop"] {
            let (recorded, replayed) = on_small_disk(&place, size, policy);
            let said = recorded.said();
            if !said.contains("recorded in") {
                // Not even room to begin.
                assert_eq!(recorded.status.code(), Some(125), "{}", recorded.describe());
                continue;
            }
            if said.contains("ends early") {
                ended_early += 1;
                assert!(
                    said.contains("disk is full") || said.contains("No space"),
                    "{said}"
                );
            }
            let status = recorded.status.code();
            match policy {
                "continue" => assert_eq!(status, Some(4), "{size}: {}", recorded.describe()),
                _ if said.contains("ends early") => {
                    assert_ne!(status, Some(4), "{size}: {}", recorded.describe());
                }
                _ => assert_eq!(status, Some(4), "{size}: {}", recorded.describe()),
            }
            assert_prefix(&recorded, &replayed, &said);
        }
    }
    assert!(ended_early >= 2, "nothing was too small");
}

#[test]
fn few_descriptors() {
    let place = Workplace::new();
    for n in [8, 12, 16, 20, 24, 40] {
        let dir = place.fresh("trace");
        let dir = dir.to_str().expect("a name");
        let number = n.to_string();
        let script = "ulimit -n $1; exec \"$0\" record -o \"$2\" -- sh -c \"$3\"";
        let work = "for p in 1 2 3; do /bin/true; /bin/date; done; echo done; exit 4";
        let out = namespace(&place, script, &[&number, dir, work]);
        let said = out.said();
        if !Path::new(dir).exists() {
            assert!(
                n < 20 && out.status.code() == Some(125) && said.contains("ulimit -n"),
                "{n}: {}",
                out.describe()
            );
            continue;
        }
        assert_eq!(out.status.code(), Some(4), "{n}: {}", out.describe());
        assert_replays(&place, &out, Path::new(dir));
    }
}

#[test]
fn files_that_may_not_get_larger() {
    let place = Workplace::new();
    // Less than the memory that a recording shares with the program.
    let dir = place.fresh("trace");
    let name = dir.to_str().expect("a name");
    let script = "ulimit -f 4000; exec \"$0\" record -o \"$1\" -- true";
    let out = namespace(&place, script, &[name]);
    assert_eq!(out.status.code(), Some(125), "{}", out.describe());
    assert!(out.said().contains("ulimit -f"), "{}", out.describe());
    assert!(!dir.exists());
    // Enough for that, but not for 40 MB of random bytes.
    for policy in ["continue", "stop"] {
        let dir = place.fresh("trace");
        let name = dir.to_str().expect("a name");
        // Who is ended for it finds out later, when it has long read them.
        let script = "ulimit -f 24000; exec \"$0\" record --on-full=$2 -o \"$1\" -- \
                      sh -c 'dd if=/dev/urandom bs=64k count=640 2>&1 > /dev/null | wc -l; \
                      [ $0 = continue ] || sleep 60; exit 4' $2";
        let out = namespace(&place, script, &[name, policy]);
        assert_eq!(
            out.status.code() == Some(4),
            policy == "continue",
            "{}",
            out.describe()
        );
        assert!(out.said().contains("ulimit -f"), "{}", out.describe());
        assert_replays(&place, &out, &dir);
    }
}

/// The program has the limits that its user gave it, whatever the recorder has.
#[test]
fn the_programs_limits_are_its_users() {
    let place = Workplace::new();
    let work = "ulimit -n; ulimit -f; ulimit -Hn; ulimit -Hf; head -c 40000000 /dev/zero > \"$0\"; echo $?";
    let file = place.fresh("large");
    let file = file.to_str().expect("a name");
    let limited = |record: &[&str]| {
        let mut command = Command::new("bash");
        let script = "ulimit -n 70; ulimit -Sn 60; ulimit -f 30000; \"$@\"";
        command.args(["-c", script, "limited"]).args(record);
        command.args(["bash", "-c", work, file]);
        place.settle(&mut command);
        run(&mut command, None)
    };
    let native = limited(&[]);
    let dir = place.fresh("trace");
    let name = dir.to_str().expect("a name");
    // SIGXFSZ ended head: 128 + 25.
    assert!(native.text().contains("153"), "{}", native.describe());
    let recorded = limited(&[REPRISE, "record", "-q", "-o", name, "--"]);
    assert_eq!(native.text(), recorded.text(), "{}", recorded.describe());
    common::assert_same(&recorded, &place.replay(&dir));
}

#[test]
fn the_directory_is_removed() {
    let place = Workplace::new();
    for policy in ["continue", "stop"] {
        for how in ["rm -rf", "mv -t /tmp/"] {
            let dir = place.fresh("trace");
            let name = dir.to_str().expect("a name");
            let elsewhere = place.fresh_dir("elsewhere");
            let how = how.replace("/tmp/", elsewhere.to_str().expect("a name"));
            // Longer than the agent takes to look.
            let work = format!("{how} \"$0\"; while [ $((n += 1)) -lt 400 ]; do true < /dev/null; /bin/true; done; exit 4");
            let flag = format!("--on-full={policy}");
            let args = ["record", &flag, "-o", name, "--", "sh", "-c", &work, name];
            let out = run(&mut place.reprise(args), None);
            let said = out.said();
            assert!(said.contains("removed or moved"), "{}", out.describe());
            assert!(!said.contains("recorded in"), "{}", out.describe());
            assert_eq!(
                out.status.code() == Some(4),
                policy == "continue",
                "{}",
                out.describe()
            );
        }
    }
}
