//! Where a program panicked (`--at panic`): back from its end, to the last call of the function by which its language begins a panic, or throws
//! the exception that nobody caught.

use crate::breakpoints::Way;
use crate::target::Session;
use crate::{DebugError, Place};
use gdbstub::stub::MultiThreadStopReason;

/// Go's: a panic, and what its runtime calls fatal.
const GO: [&str; 3] = ["runtime.gopanic", "runtime.throw", "runtime.fatal"];
/// C++'s, by the Itanium ABI. What throws once more doesn't count: libstdc++ does so itself, to print what nobody has caught.
const CPP: &str = "__cxa_throw";
/// Rust's, where debuggers are meant to stop; mangled since 1.87.
const RUST: &str = "rust_panic";
const RUST_MANGLED: [&str; 2] = ["_RNv", "10rust_panic"];

fn is_of_rust(name: &str) -> bool {
    let [begins, ends] = RUST_MANGLED;
    name == RUST || name.starts_with(begins) && name.ends_with(ends)
}

impl Session {
    /// Goes back to the last breakpoint that a thread of this kind of slot comes to.
    fn go_back_to(&mut self, is_it: impl Fn(usize) -> bool) -> Result<bool, DebugError> {
        loop {
            match self.back(&mut || false)? {
                MultiThreadStopReason::SwBreak(_) if is_it(self.debuggee()?.current) => {
                    return Ok(true)
                }
                MultiThreadStopReason::SwBreak(_) => {}
                _ => return Ok(false),
            }
        }
    }

    /// Goes there.
    ///
    /// # Errors
    /// When it did not panic, or the program doesn't tell of its functions.
    pub(crate) fn go_to_panic(&mut self) -> Result<(), DebugError> {
        self.go_to_place(Place::End)?;
        let d = self.debuggee()?;
        let (died, slot) = (d.timeline.signal != 0, d.current);
        // Exceptions that are caught are everyday: one that nobody catches ends the program by abort(3).
        let functions =
            d.functions(|name| is_of_rust(name) || GO.contains(&name) || died && name == CPP);
        if functions.is_empty() {
            return Err(DebugError::Refused(
                "the program has no function by which Rust or Go panic, or C++ throws what ended it (or its symbols were stripped)".into(),
            ));
        }
        for at in &functions {
            d.points.add(*at, Way::Hardware, Vec::new());
        }
        // The thread that ended the program threw, unless it was given the exception by another one.
        let mut found = self.go_back_to(|at| !died || at == slot)?;
        if !found && died {
            self.go_to_place(Place::End)?;
            found = self.go_back_to(|_| true)?;
        }
        let d = self.debuggee()?;
        for at in &functions {
            d.points.remove(*at, Way::Hardware);
        }
        match found {
            true => Ok(()),
            false => Err(DebugError::Refused(
                "the recorded program did not panic: --at crash or --at end lead to its end".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_rust;

    #[test]
    fn the_function_of_rust_has_had_several_names() {
        for name in ["rust_panic", "_RNvCsfLfy6EI15iL_7___rustc10rust_panic"] {
            assert!(is_of_rust(name), "{name}");
        }
        for name in [
            "_RNvCsfLfy6EI15iL_7___rustc20___rust_panic_cleanup",
            "my_10rust_panic",
        ] {
            assert!(!is_of_rust(name), "{name}");
        }
    }
}
