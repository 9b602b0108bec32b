//! Goroutines in `backtrace`: what each waits for, where, and who has started it, of a Go program that is recorded as it is.

use crate::common;

use common::{run, Guest, Outcome, Workplace};
use serde_json::Value;

guests! { asked_go }

/// The number of the guest's line that has this text.
fn line_with(text: &str) -> u64 {
    let source = common::sources().join("asked_go.go");
    let all = std::fs::read_to_string(source).expect("a guest's source");
    let at = all.lines().position(|l| l.contains(text));
    at.expect("a line") as u64 + 1
}

#[test]
fn each_goroutine_is_told_with_its_stack_and_what_it_waits_for() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked_go").ends(Outcome::Exit(3)));
    let mut command = place.reprise(["backtrace", "--json"]);
    let told = run(command.arg(&trace.dir), None);
    assert!(told.status.success(), "{}", told.describe());
    let told: Value = serde_json::from_str(&told.text()).expect("JSON");
    let all = told["goroutines"].as_array().expect("goroutines");
    let inside = |g: &Value, function: &str| {
        let frames = g["frames"].as_array().expect("frames").iter();
        let mut of_it = frames.filter(|f| f["function"] == function);
        of_it.next().cloned()
    };
    for (function, reason, line) in [
        ("main.receives", "chan receive", "here it receives"),
        ("main.locks", "sync.Mutex.Lock", "here it locks"),
        ("main.selects", "select", "here it selects"),
        ("main.sleeps", "sleep", "here it sleeps"),
        ("main.reads", "IO wait", "here it reads"),
    ] {
        let found = all.iter().find(|g| inside(g, function).is_some());
        let found = found.unwrap_or_else(|| panic!("nobody is in {function}: {told}"));
        assert_eq!(found["state"], "waiting", "{found}");
        assert_eq!(found["waits_for"], reason, "{found}");
        assert_eq!(found["created_by"], "main.starts", "{found}");
        let frame = inside(found, function).expect("it is there");
        assert_eq!(frame["line"], line_with(line), "{found}");
        // The innermost is the runtime's, which lets it wait.
        assert_eq!(found["frames"][0]["function"], "runtime.gopark", "{found}");
    }
    // The one that ends the program is its thread's, and the runtime's own are none of the program's.
    let main = all.iter().find(|g| g["goroutine"] == 1).expect("the first");
    let threads = told["threads"].as_array().expect("threads");
    let thread = threads.iter().find(|t| t["stopped"] == true);
    assert_eq!(main["state"], "running", "{main}");
    assert_eq!(main["thread"], thread.expect("one")["thread"], "{told}");
    assert_eq!(all.len(), 6, "{told}");
    let stacks = [main, thread.expect("one")];
    let ends = stacks.iter().find_map(|s| inside(s, "main.main"));
    assert_eq!(ends.expect("it ends")["line"], line_with("here it ends"));
    let text = run(place.reprise(["backtrace"]).arg(&trace.dir), None).text();
    assert!(
        text.contains(" (chan receive), created by main.starts\n"),
        "{text}"
    );
}
