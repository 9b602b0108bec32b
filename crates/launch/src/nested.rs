//! Is this process itself a recorded or replayed one?

use crate::process;
use reprise_abi::layout::SESSION_BASE;
use reprise_abi::session::MAGIC;

/// True inside a recording, and in its replay: the session's memory is where it always is.
pub fn inside_a_session() -> bool {
    let mut magic = [0; size_of_val(&MAGIC)];
    let copied = process::read(std::process::id() as i32, SESSION_BASE, &mut magic);
    copied.is_ok_and(|n| n == magic.len()) && magic == MAGIC.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_is_in_no_session() {
        assert!(!super::inside_a_session());
    }
}
