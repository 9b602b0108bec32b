//! `--engine none`: everything is captured, nothing is logged or ordered. Every guest must behave as it does by itself: it
//! proves that capturing alone changes nothing, and that the engines stand behind a seam.

use crate::common;

use common::{all_sources, message, run, shape, Source, Workplace};

fn part(index: usize, parts: usize) {
    let mut failures = Vec::new();
    for (_, name) in all_sources()
        .iter()
        .enumerate()
        .filter(|(i, _)| i % parts == index)
    {
        for guest in Source::read(name).guests() {
            let place = Workplace::new();
            let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let native = guest.native(&place);
                assert!(
                    guest.outcome.fits(native.status),
                    "by itself it ended wrongly: {}",
                    native.describe()
                );
                let mut command = place.reprise(["record", "--engine", "none", "--"]);
                command.arg(&guest.program).args(&guest.args);
                let captured = run(&mut command, None);
                assert!(
                    guest.outcome.fits(captured.status),
                    "wanted {:?}: {}",
                    guest.outcome,
                    captured.describe()
                );
                let (a, b) = (shape(&native.stdout), shape(&captured.stdout));
                if let Some((x, y)) = a.iter().zip(&b).find(|(x, y)| x != y) {
                    panic!("another shape of output\n    by itself: {x}\n    captured:  {y}");
                }
                assert_eq!(
                    a.len(),
                    b.len(),
                    "another number of lines: {}",
                    captured.describe()
                );
            }));
            if let Err(why) = attempt {
                failures.push(format!("{}: {}", guest.label(), message(&*why)));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_guest_behaves_as_by_itself_1() {
    part(0, 4);
}

#[test]
fn every_guest_behaves_as_by_itself_2() {
    part(1, 4);
}

#[test]
fn every_guest_behaves_as_by_itself_3() {
    part(2, 4);
}

#[test]
fn every_guest_behaves_as_by_itself_4() {
    part(3, 4);
}

#[test]
fn every_guest_is_in_a_test() {
    // A guest that nobody records is forgotten soon.
    let text = common::sources_of_tests("", |_| true);
    let words: std::collections::HashSet<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let missing: Vec<_> = all_sources()
        .into_iter()
        .filter(|n| !words.contains(n.as_str()))
        .collect();
    assert!(missing.is_empty(), "guests that no test names: {missing:?}");
}
