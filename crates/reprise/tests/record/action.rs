//! `.github/actions/record`: what its script does with a command that fails, one that doesn't, and words that are none.

use crate::common;

use common::{built, run, system_program, top, Run, Workplace, REPRISE};
use std::path::PathBuf;
use std::process::Command;

const ACTION: &str = ".github/actions/record";

/// A job of GitHub's, as far as the script sees it.
struct Job {
    place: Workplace,
    inputs: Vec<(&'static str, String)>,
}

/// What the script left.
struct Done {
    run: Run,
    outputs: String,
    summary: String,
}

impl Job {
    fn new(command: &str) -> Job {
        let inputs = [
            ("RUN", command),
            ("WRAP", "true"),
            ("OPTIONS", ""),
            ("REPRISE", REPRISE),
            ("ENCRYPT_TO", ""),
            ("MOST", "5"),
        ];
        Job {
            place: Workplace::new(),
            inputs: inputs.map(|(name, value)| (name, value.to_string())).into(),
        }
    }

    fn with(mut self, name: &str, value: &str) -> Job {
        let input = self.inputs.iter_mut().find(|i| i.0 == name);
        input.expect("an input").1 = value.into();
        self
    }

    fn done(&self) -> Done {
        let (outputs, summary) = (self.place.fresh("outputs"), self.place.fresh("summary"));
        let mut command = Command::new(top().join(ACTION).join("record.sh"));
        self.place.settle(&mut command);
        command.env("RUNNER_TEMP", self.place.fresh_dir("temp"));
        command
            .env("GITHUB_OUTPUT", &outputs)
            .env("GITHUB_STEP_SUMMARY", &summary);
        for (name, value) in &self.inputs {
            command.env(format!("RECORD_{name}"), value);
        }
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Done {
            run: run(&mut command, None),
            outputs: text(outputs),
            summary: text(summary),
        }
    }
}

impl Done {
    fn output(&self, name: &str) -> &str {
        let mut lines = self.outputs.lines().filter_map(|l| l.split_once('='));
        let found = lines.find(|(n, _)| *n == name).map(|(_, value)| value);
        found.unwrap_or_else(|| panic!("no {name}: {}\n{}", self.outputs, self.run.describe()))
    }

    /// The packs, by their names.
    fn packs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.output("directory")).expect("a directory");
        let mut packs: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
        packs.sort();
        packs
    }
}

/// Each input of the action is one of the script's, and each variable that the script has is set by the action.
#[test]
fn the_action_and_its_script_agree() {
    let read = |name| std::fs::read_to_string(top().join(ACTION).join(name)).expect("a file");
    let (action, script) = (read("action.yml"), read("record.sh"));
    for (name, _) in Job::new("").inputs {
        let input = name.to_lowercase().replace('_', "-");
        let line = format!("RECORD_{name}: ${{{{ inputs.{input} }}}}\n");
        assert!(action.contains(&line), "action.yml lacks {line}");
        assert!(
            action.contains(&format!("\n  {input}:\n")),
            "no input {input}"
        );
        assert!(
            script.contains(&format!("$RECORD_{name}")),
            "record.sh doesn't use {name}"
        );
    }
    let given = action.matches("RECORD_").count() - action.matches("$RECORD_").count();
    // The six, the script's place and the status.
    assert_eq!(given, 8, "{action}");
    // Inputs are never part of a script's text.
    let runs = action
        .lines()
        .filter(|l| l.trim_start().starts_with("run: "));
    assert!(
        runs.clone().count() == 2 && !runs.clone().any(|l| l.contains("${{")),
        "{action}"
    );
}

#[test]
fn what_failed_is_packed_and_told_in_the_summary() {
    let program = built("crash");
    let program = program.to_str().expect("text");
    let script = format!("echo '<b> & \"c\"'\n{program} abort\necho never");
    let job = Job::new(&script);
    let done = job.done();
    assert!(done.run.status.success(), "{}", done.run.describe());
    assert_eq!(done.output("status"), "134", "{}", done.run.describe());
    assert_eq!(done.output("kept"), "1");
    assert!(
        done.run.text().starts_with("<b> & \"c\"\n"),
        "{}",
        done.run.describe()
    );
    assert!(
        !done.run.text().contains("never"),
        "{}",
        done.run.describe()
    );
    // Text of the program is text there.
    assert!(
        done.summary.contains("&lt;b&gt; &amp; \"c\""),
        "{}",
        done.summary
    );
    assert!(
        done.summary.contains("#0 ") && done.summary.contains(" main at "),
        "{}",
        done.summary
    );
    let pack = &done.packs()[..];
    assert_eq!(pack.len(), 1, "{pack:?}");
    let replay = run(job.place.reprise(["replay"]).arg(&pack[0]), None);
    assert_eq!(replay.stdout, done.run.stdout, "{}", replay.describe());
}

#[test]
fn what_goes_well_leaves_nothing() {
    let done = Job::new("echo well | cat").done();
    assert!(done.run.status.success(), "{}", done.run.describe());
    assert_eq!((done.output("status"), done.output("kept")), ("0", "0"));
    assert_eq!(
        (done.run.text().as_str(), done.summary.as_str()),
        ("well\n", "")
    );
}

/// A command that records by itself, three times, of which two are kept, for somebody.
#[test]
fn recordings_of_a_test_runner_are_kept_encrypted() {
    use age::secrecy::ExposeSecret;
    let identity = age::x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let script = "for n in 0 3 4 5; do reprise record -q --keep-on=failure -- sh -c \"exit $n\" || last=$?; done; exit $last";
    let job = Job::new(script).with("WRAP", "false").with("MOST", "2");
    let job = job.with("ENCRYPT_TO", &format!(" {public} {public}"));
    let done = job.done();
    assert_eq!(
        (done.output("status"), done.output("kept")),
        ("5", "2"),
        "{}",
        done.run.describe()
    );
    let last = done.summary.lines().last();
    assert_eq!(
        last,
        Some("1 more recordings were not kept."),
        "{}",
        done.summary
    );
    let key = job.place.fresh("key");
    std::fs::write(&key, identity.to_string().expose_secret()).expect("written");
    for (pack, status) in done.packs().iter().zip([3, 4]) {
        assert_eq!(pack.extension(), Some("age".as_ref()), "{pack:?}");
        let refused = run(job.place.reprise(["replay"]).arg(pack), None);
        assert!(
            refused.said().contains("--identity"),
            "{}",
            refused.describe()
        );
        let replay = run(
            job.place
                .reprise(["replay", "--identity"])
                .arg(&key)
                .arg(pack),
            None,
        );
        assert_eq!(replay.status.code(), Some(status), "{}", replay.describe());
    }
}

#[test]
fn wrong_inputs_are_told() {
    for (name, value, said) in [
        ("REPRISE", "/no/such/reprise", "there is no program"),
        ("MOST", "many", "wants a number"),
        ("WRAP", "yes", "is true or false"),
    ] {
        let done = Job::new("true").with(name, value).done();
        assert_eq!(done.run.status.code(), Some(125), "{}", done.run.describe());
        assert!(done.run.text().contains(said), "{}", done.run.describe());
    }
    // The shell's own words for what can't be read.
    let mut check = Command::new(system_program("bash"));
    let checked = run(
        check.arg("-n").arg(top().join(ACTION).join("record.sh")),
        None,
    );
    assert!(checked.status.success(), "{}", checked.describe());
}
