//! What the tests of `--engine order` have in common.

use super::{check_times, message, Guest};

/// The engine.
pub const ORDER: [&str; 2] = ["--engine", "order"];

/// Records each guest, replays it twice in partial order and once in total order.
///
/// # Panics
/// With what was not as it should be, when all were tried.
pub fn each(names: &[&str]) {
    let plain: Vec<_> = names.iter().map(|n| (*n, &[][..])).collect();
    each_with(&plain);
}

/// As [`each`], with arguments.
///
/// # Panics
/// As [`each`].
pub fn each_with(guests: &[(&str, &[&str])]) {
    let mut failures = Vec::new();
    for (name, args) in guests {
        let attempt = std::panic::catch_unwind(|| {
            check_times(&Guest::new(name).args(*args), &ORDER, 1, 2);
        });
        if let Err(why) = attempt {
            failures.push(format!("{name}: {}", message(&*why)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
