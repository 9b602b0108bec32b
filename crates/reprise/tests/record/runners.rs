//! Test runners that start their tests by `reprise record`, as docs/TEST-RUNNERS.md has it: the recordings of failing tests are kept, and of no others.

use crate::common;

use common::{run, skip, top, Run, Workplace, REPRISE};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of one of the projects in `tests/runners`.
fn project(place: &Workplace, name: &str) -> PathBuf {
    let dir = place.fresh(name);
    let mut copy = Command::new("cp");
    copy.arg("-R")
        .arg(top().join("tests/runners").join(name))
        .arg(&dir);
    let copied = run(&mut copy, None);
    assert!(copied.status.success(), "{}", copied.describe());
    dir
}

/// Types a command there, where runners and `reprise` are found by their names.
fn typed(place: &Workplace, dir: &Path, words: &[&str]) -> Run {
    let mut command = Command::new("env");
    place.settle(&mut command);
    let own = Path::new(REPRISE).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let runners = top().join("target/test-runners/bin");
    let path = format!(
        "{}:{}:{path}:/usr/local/go/bin",
        own.display(),
        runners.display()
    );
    command
        .arg(format!("PATH={path}"))
        .args(words)
        .current_dir(dir);
    // What this test was started with is not for cargo's tests in there.
    for inherited in ["CARGO_TARGET_DIR", "CARGO_MANIFEST_DIR", "NEXTEST_PROFILE"] {
        command.env_remove(inherited);
    }
    run(&mut command, None)
}

/// Whether the runners are there that scripts/setup-tests.sh installs.
fn has_runners() -> bool {
    let there = top().join("target/test-runners/wanted").exists();
    if !there {
        skip("there are no test runners (scripts/setup-tests.sh installs them)");
    }
    there
}

/// The recordings that were kept: how each ended, and its command line.
fn kept(place: &Workplace) -> Vec<(String, String)> {
    let listed = run(&mut place.reprise(["ls", "--json"]), None);
    let all: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let of = |trace: &serde_json::Value| {
        let words = trace["argv"].as_array().expect("words").iter();
        let words: Vec<&str> = words.filter_map(serde_json::Value::as_str).collect();
        let end = trace["exit"].as_str().expect("an end");
        (end.to_string(), words.join(" "))
    };
    let mut kept: Vec<_> = all.as_array().expect("a list").iter().map(of).collect();
    kept.sort();
    kept
}

/// These were kept, by their ends and a word of their command lines, and each is named where the runner tells of its test.
fn assert_kept(place: &Workplace, told: &Run, wanted: &[(&str, &str)]) {
    let kept = kept(place);
    let all = kept.iter().zip(wanted);
    let fits = all.clone().all(|(k, w)| k.0 == w.0 && k.1.contains(w.1));
    assert!(
        fits && kept.len() == wanted.len(),
        "{kept:?}\n{}",
        told.describe()
    );
    let both = told.said() + &told.text() + &told.notes;
    let lines = both.matches("recorded in ").count();
    assert!(lines >= wanted.len(), "{}", told.describe());
}

/// The document shows what is tried here.
fn assert_shown(file: &str) {
    let text = std::fs::read_to_string(top().join("tests/runners").join(file)).expect("an example");
    let block: String = text
        .lines()
        .map(|line| match line.is_empty() {
            true => "\n".to_string(),
            false => format!("    {line}\n"),
        })
        .collect();
    assert_document_has(&block);
}

fn assert_document_has(text: &str) {
    let document = std::fs::read_to_string(top().join("docs/TEST-RUNNERS.md")).expect("a document");
    assert!(
        document.contains(text),
        "docs/TEST-RUNNERS.md lacks\n{text}"
    );
}

#[test]
fn nextest() {
    assert_shown("nextest/.config/nextest.toml");
    if !has_runners() {
        return;
    }
    let place = Workplace::new();
    let dir = project(&place, "nextest");
    // The test that hangs has a shorter time than the others.
    let config = dir.join(".config/nextest.toml");
    let text = std::fs::read_to_string(&config).expect("text");
    let all = text.find("[[").expect("all tests");
    let short = "[scripts.wrapper.short]\ncommand = [\"reprise\", \"record\", \"--keep-on=failure\", \"--time-limit\", \"1\", \"--\"]\n\n\
                 [[profile.default.scripts]]\nfilter = \"test(hangs)\"\nrun-wrapper = \"short\"\n\n";
    let text = format!("{}{short}{}", &text[..all], &text[all..]);
    std::fs::write(&config, text).expect("written");
    let words = ["cargo", "nextest", "run", "--offline", "--no-fail-fast"];
    let told = typed(&place, &dir, &words);
    assert_eq!(told.status.code(), Some(100), "{}", told.describe());
    let wanted = [
        ("exited with 101", "adds_wrongly"),
        ("killed by SIGKILL", "hangs"),
    ];
    assert_kept(&place, &told, &wanted);
}

#[test]
fn go() {
    let place = Workplace::new();
    let dir = project(&place, "go");
    let wrapper = "reprise record --keep-on=failure --";
    assert_document_has(&format!("go test -exec \"{wrapper}\" ./..."));
    let told = typed(&place, &dir, &["go", "test", "-exec", wrapper, "./..."]);
    assert_eq!(told.status.code(), Some(1), "{}", told.describe());
    assert_kept(&place, &told, &[("exited with 1", "sums.test")]);
    assert!(told.text().contains("sums/right"), "{}", told.describe());
}

#[test]
fn ctest() {
    let launcher = "-DCMAKE_TEST_LAUNCHER=\"reprise;record;--keep-on=failure;--time-limit;600;--\"";
    assert_document_has(&format!("cmake -B build {launcher}"));
    if !has_runners() {
        return;
    }
    let place = Workplace::new();
    let dir = project(&place, "ctest");
    for words in [
        &["cmake", "-B", "build", &launcher.replace('"', "")][..],
        &["cmake", "--build", "build"],
    ] {
        let done = typed(&place, &dir, words);
        assert!(done.status.success(), "{}", done.describe());
    }
    let told = typed(
        &place,
        &dir,
        &["ctest", "--test-dir", "build", "--output-on-failure"],
    );
    assert_eq!(told.status.code(), Some(8), "{}", told.describe());
    let wanted = [
        ("killed by SIGABRT", "sums 4"),
        ("killed by SIGKILL", "waits 0"),
    ];
    assert_kept(&place, &told, &wanted);
    assert!(
        told.text().contains("was ended after 1 s"),
        "{}",
        told.describe()
    );
}

#[test]
fn pytest() {
    assert_shown("pytest/conftest.py");
    if !has_runners() {
        return;
    }
    let place = Workplace::new();
    let dir = project(&place, "pytest");
    let told = typed(&place, &dir, &["python", "-m", "pytest"]);
    assert_eq!(told.status.code(), Some(1), "{}", told.describe());
    let end = "1 failed, 1 passed, 1 skipped";
    assert!(told.text().contains(end), "{}", told.describe());
    assert_kept(&place, &told, &[("exited with 1", "test_adds_wrongly")]);
}
