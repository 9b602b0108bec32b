//! Pictures of traces: `export --perfetto` writes what its readers expect, and all of it.

use crate::common;

use common::{run, Guest, Recording, Run, Workplace, OWN_FAILURE};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// A track: ids of a process and a thread.
type Track = (i64, i64);

/// What an export says.
struct Picture {
    about: Value,
    events: Vec<Value>,
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

fn time(event: &Value) -> f64 {
    let time = event["ts"].as_f64();
    time.unwrap_or_else(|| panic!("no time: {event}"))
}

fn track(event: &Value) -> Track {
    let id = |name: &str| event[name].as_i64();
    match (id("pid"), id("tid")) {
        (Some(pid), Some(tid)) => (pid, tid),
        _ => panic!("no track: {event}"),
    }
}

impl Picture {
    fn parse(json: &[u8]) -> Picture {
        let whole: Value = serde_json::from_slice(json).expect("JSON");
        let events = whole["traceEvents"].as_array().expect("a list").clone();
        Picture {
            about: whole["otherData"].clone(),
            events,
        }
    }

    fn of(place: &Workplace, trace: &Path) -> Picture {
        let file = place.fresh("picture").with_extension("json");
        let out = export(place, trace, &file);
        assert!(out.status.success(), "{}", out.describe());
        Picture::parse(&std::fs::read(&file).expect("the picture"))
    }

    fn phase<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["ph"] == phase)
    }

    /// Slices and instants of this category.
    fn category(&self, category: &str) -> Vec<&Value> {
        let all = self.events.iter();
        all.filter(|e| e["cat"] == category && matches!(text(e, "ph"), "X" | "B" | "i"))
            .collect()
    }

    /// Names of flows of this kind.
    fn flows(&self, kind: &str) -> BTreeSet<&str> {
        let starts = self.phase("s").filter(|e| e["cat"] == kind);
        starts.map(|e| text(e, "name")).collect()
    }

    /// Tracks with a name, but for that of the baton.
    fn threads(&self) -> BTreeMap<Track, &str> {
        let named = self.phase("M").filter(|e| e["name"] == "thread_name");
        let tracks = named.map(|e| (track(e), text(&e["args"], "name")));
        tracks.filter(|(_, name)| *name != "baton").collect()
    }

    /// All that readers of the format rely on.
    fn assert_sound(&self) {
        let mut ends: BTreeMap<Track, f64> = BTreeMap::new();
        let mut open: BTreeMap<Track, u32> = BTreeMap::new();
        let mut flows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for e in &self.events {
            let own = track(e);
            match text(e, "ph") {
                "M" => continue,
                "s" | "f" => {
                    let id = e["id"].as_u64().expect("an id");
                    flows.entry(id).or_default().push(e);
                    continue;
                }
                "X" => assert!(e["dur"].as_f64() > Some(0.0), "{e}"),
                "i" => assert_eq!(e["s"], "t", "{e}"),
                "B" => *open.entry(own).or_default() += 1,
                "E" => {
                    let depth = open.entry(own).or_default();
                    assert!(*depth > 0, "an end without a beginning: {e}");
                    *depth -= 1;
                }
                other => panic!("phase {other}: {e}"),
            }
            used.insert(own);
            assert!(*open.get(&own).unwrap_or(&0) <= 1, "a call in a call: {e}");
            let end = ends.entry(own).or_default();
            assert!(
                time(e) >= *end,
                "time goes backward on its track: {e}, after {end}"
            );
            *end = time(e) + e["dur"].as_f64().unwrap_or(0.0);
        }
        assert!(
            open.values().all(|depth| *depth == 0),
            "calls without an end: {open:?}"
        );
        let mut named: BTreeSet<Track> = self.threads().into_keys().collect();
        named.extend(
            self.phase("M")
                .filter(|e| e["args"]["name"] == "baton")
                .map(track),
        );
        assert!(
            used.is_subset(&named),
            "tracks without a name: {used:?}, {named:?}"
        );
        let slices = self.slices();
        let inside = |e: &Value| {
            let (own, at) = (&slices[&track(e)], time(e));
            let before = own.partition_point(|slice| slice.0 < at);
            own[..before].iter().rev().any(|slice| at < slice.1)
        };
        for (id, ends) in flows {
            let [from, to] = ends[..] else {
                panic!("flow {id} has {} ends", ends.len());
            };
            assert_eq!(
                (text(from, "ph"), text(to, "ph")),
                ("s", "f"),
                "{from}, {to}"
            );
            assert_eq!((&from["name"], &from["cat"]), (&to["name"], &to["cat"]));
            assert_eq!(to["bp"], "e", "{to}");
            assert!(time(from) < time(to), "backward: {from}, {to}");
            assert_ne!(track(from), track(to), "to itself: {from}, {to}");
            for end in [from, to] {
                assert!(inside(end), "hangs in the air: {end}");
            }
        }
    }

    /// The slices of each track, by their beginnings: their ends.
    fn slices(&self) -> BTreeMap<Track, Vec<(f64, f64)>> {
        let mut slices: BTreeMap<Track, Vec<(f64, f64)>> = BTreeMap::new();
        for e in &self.events {
            let own = slices.entry(track(e)).or_default();
            match text(e, "ph") {
                "X" => own.push((time(e), time(e) + e["dur"].as_f64().unwrap_or(0.0))),
                "B" => own.push((time(e), f64::INFINITY)),
                "E" => {
                    let open = own.iter_mut().rfind(|slice| slice.1.is_infinite());
                    open.expect("a beginning").1 = time(e);
                }
                _ => {}
            }
        }
        let all = slices.values_mut();
        all.for_each(|own| own.sort_by(|a, b| a.0.total_cmp(&b.0)));
        slices
    }

    /// It has everything that the trace has.
    fn assert_whole(&self, place: &Workplace, trace: &Path) {
        self.assert_sound();
        let info = place.info(trace);
        let calls = self.category("call").len() as u64;
        assert_eq!(
            calls,
            info.kind("syscall") + info.kind("enter"),
            "{}",
            info.0
        );
        assert_eq!(
            self.threads().len() as u64,
            info.0["threads"].as_u64().expect("threads")
        );
        assert_eq!(self.about["events"], info.0["events"]);
        for kind in [
            "signal",
            "cut",
            "exec",
            "process-start",
            "thread-start",
            "sync",
            "fault",
        ] {
            assert_eq!(self.category(kind).len() as u64, info.kind(kind), "{kind}");
        }
        let somebody_runs = info.0["engine"] == "serial" && info.events() > 0;
        assert_eq!(self.category("baton").is_empty(), !somebody_runs);
    }
}

fn export(place: &Workplace, trace: &Path, file: &Path) -> Run {
    let mut command = place.reprise(["export", "--perfetto"]);
    run(command.arg(trace).arg("-o").arg(file), None)
}

fn recorded(place: &Workplace, guest: &Guest, flags: &[&str]) -> Recording {
    let recording = place.record_with(guest, flags);
    assert!(
        guest.outcome.fits(recording.run.status),
        "{}",
        recording.run.describe()
    );
    recording
}

const ENGINES: [&[&str]; 2] = [&["--engine", "serial"], &["--engine", "order"]];

#[test]
fn threads_calls_and_locks_of_both_engines() {
    let place = Workplace::new();
    let guest = Guest::new("mutex_contention");
    for (engine, locks) in ENGINES.iter().zip(["futex", "lock"]) {
        let recording = recorded(&place, &guest, engine);
        let picture = Picture::of(&place, &recording.dir);
        picture.assert_whole(&place, &recording.dir);
        assert!(
            !picture.flows(locks).is_empty(),
            "no flow of a {locks}: {engine:?}"
        );
        assert_eq!(picture.flows("birth").len(), 1);
        let births = picture.phase("s").filter(|e| e["cat"] == "birth").count();
        assert_eq!(births as u64 + 1, picture.threads().len() as u64);
        assert!(picture
            .threads()
            .values()
            .all(|name| *name == "mutex_contentio"));
    }
}

#[test]
fn pipes_between_processes() {
    let place = Workplace::new();
    for engine in ENGINES {
        let recording = recorded(
            &place,
            &Guest::new("process_pipes").args(["4", "50"]),
            engine,
        );
        let picture = Picture::of(&place, &recording.dir);
        picture.assert_whole(&place, &recording.dir);
        // The stages are joined by two pipes and two socket pairs.
        assert_eq!(
            picture.flows("pipe").len(),
            2,
            "{:?}",
            picture.flows("pipe")
        );
        assert_eq!(
            picture.flows("socket").len(),
            2,
            "{:?}",
            picture.flows("socket")
        );
    }
}

#[test]
fn programs_of_a_pipeline() {
    let place = Workplace::new();
    let guest = Guest::program("/bin/sh").args(["-c", "seq 9 | sort -r | head -3; exit 0"]);
    for engine in ENGINES {
        let flags = [engine, &["--force"][..]].concat();
        let recording = recorded(&place, &guest, &flags);
        let picture = Picture::of(&place, &recording.dir);
        picture.assert_whole(&place, &recording.dir);
        let names: BTreeSet<&str> = picture.threads().into_values().collect();
        assert_eq!(names, BTreeSet::from(["sh", "seq", "sort", "head"]));
        let processes: BTreeMap<i64, &str> = picture
            .phase("M")
            .filter(|e| e["name"] == "process_name")
            .map(|e| (track(e).0, text(&e["args"], "name")))
            .collect();
        assert!(
            processes.values().any(|name| *name == "sort -r"),
            "{processes:?}"
        );
        assert_eq!(
            picture.flows("pipe").len(),
            2,
            "{:?}",
            picture.flows("pipe")
        );
    }
}

#[test]
fn who_has_the_baton() {
    let place = Workplace::new();
    let guest = Guest::new("cut_spin_flag");
    let recording = recorded(&place, &guest, &[]);
    let picture = Picture::of(&place, &recording.dir);
    picture.assert_whole(&place, &recording.dir);
    assert!(!picture.category("cut").is_empty(), "nothing was cut");
    let baton = picture.category("baton");
    let slices: Vec<&&Value> = baton.iter().filter(|e| e["ph"] == "X").collect();
    // Somebody has it always, and one at a time.
    let end = slices.iter().fold(time(slices[0]), |end, slice| {
        assert_eq!(time(slice), end, "{slice}");
        end + slice["dur"].as_f64().expect("a duration")
    });
    assert!(end + 2.0 >= picture.about["events"].as_f64().expect("events"));
    let hand_offs: Vec<&&Value> = baton.iter().filter(|e| e["ph"] == "i").collect();
    assert_eq!(hand_offs.len() + 1, slices.len());
    assert!(
        hand_offs
            .iter()
            .any(|e| text(&e["args"], "why").contains("cut")),
        "no hand-off at a cut"
    );
}

#[test]
fn signals_and_names() {
    let place = Workplace::new();
    let recording = recorded(
        &place,
        &Guest::new("signal_between_threads").args(["3"]),
        &[],
    );
    let picture = Picture::of(&place, &recording.dir);
    picture.assert_whole(&place, &recording.dir);
    assert!(picture
        .category("signal")
        .iter()
        .all(|e| e["name"] == "SIGUSR1" && e["ph"] == "i"));
    assert!(!picture.category("signal").is_empty());
    let recording = recorded(&place, &Guest::new("prctl_options"), &[]);
    let picture = Picture::of(&place, &recording.dir);
    picture.assert_whole(&place, &recording.dir);
    let calls = picture.category("call").into_iter();
    let said: BTreeSet<&str> = calls
        .filter_map(|e| text(&e["args"], "text").strip_prefix("prctl(PR_SET_NAME, \""))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(!said.is_empty(), "the guest names no thread");
    let all: BTreeSet<&str> = picture
        .phase("M")
        .filter(|e| e["name"] == "thread_name")
        .map(|e| text(&e["args"], "name"))
        .collect();
    for name in said {
        let kept: String = name.chars().take(15).collect();
        assert!(
            all.contains(kept.as_str()),
            "{name} is no track's name: {all:?}"
        );
    }
}

/// kill -9 of everything leaves the events before; so does a file that is cut off anywhere.
#[test]
fn traces_that_end_early() {
    let place = Workplace::new();
    for engine in ENGINES {
        let recording = recorded(&place, &Guest::new("sync_mutex"), engine);
        let whole = Picture::of(&place, &recording.dir);
        let _ = std::fs::remove_file(recording.dir.join("summary.json"));
        let events = recording.dir.join("events.zst");
        let length = std::fs::metadata(&events).expect("events").len();
        let mut shorter = 0;
        for part in [9, 7, 4, 1, 0] {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(&events)
                .expect("events");
            file.set_len(length * part / 10).expect("cut off");
            let picture = Picture::of(&place, &recording.dir);
            picture.assert_whole(&place, &recording.dir);
            assert!(picture.events.len() < whole.events.len());
            assert!(picture.about["incomplete"].is_string(), "{}", picture.about);
            shorter += u64::from(picture.about["events"] != 0);
        }
        assert!(shorter > 0, "nothing was left of the trace at all");
    }
}

#[test]
fn packed_ones_and_other_places() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("thread_create").args(["3"]), &[]);
    let packed = place.fresh("bug").with_extension("reprise");
    let mut command = place.reprise(["pack", "-o"]);
    let out = run(command.arg(&packed).arg(&recording.dir), None);
    assert!(out.status.success(), "{}", out.describe());
    // The usual name, compressed.
    let mut command = place.reprise(["export", "--perfetto"]);
    let here = place.fresh_dir("here");
    let out = run(command.arg(&packed).current_dir(&here), None);
    assert!(out.status.success(), "{}", out.describe());
    let name = packed.with_extension("json.gz");
    let file = here.join(name.file_name().expect("a name"));
    let mut json = Vec::new();
    let opened = std::fs::File::open(&file).unwrap_or_else(|e| panic!("{e}: {}", out.describe()));
    GzDecoder::new(opened).read_to_end(&mut json).expect("gzip");
    Picture::parse(&json).assert_whole(&place, &recording.dir);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(file.metadata().expect("the file").mode() & 0o777, 0o600);
    // Standard output, a pipe here, and a device.
    let mut command = place.reprise(["export", "--perfetto", "-o", "-"]);
    let out = run(command.arg(&recording.dir), None);
    assert_eq!(out.stdout, json, "{}", out.describe());
    let out = export(&place, &recording.dir, Path::new("/dev/null"));
    assert!(out.status.success(), "{}", out.describe());
    // Nowhere, and of nothing.
    let nowhere = place.fresh("nowhere").join("file.json");
    export(&place, &recording.dir, &nowhere).assert_own_failure(OWN_FAILURE);
    let full = export(&place, &recording.dir, Path::new("/dev/full"));
    full.assert_own_failure(OWN_FAILURE);
    let file = here.join("new.json");
    export(&place, &here, &file).assert_own_failure(OWN_FAILURE);
    let left = std::fs::read_dir(&here).expect("a directory").count();
    assert_eq!(left, 1, "something was left behind");
}
