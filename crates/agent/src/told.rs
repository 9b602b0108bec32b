//! What the program wanted and did not get is told when it happens, a line on standard error for each kind: in the end, who wonders why the program failed
//! has seen only that.

use reprise_abi::notes;
use reprise_abi::session::Session;
use reprise_console::say;
use std::sync::atomic::Ordering::Relaxed;

/// The notes that were told.
#[derive(Default)]
pub struct Told(u64);

impl Told {
    /// Tells of what has come since. Nobody may be there to read it.
    pub fn look(&mut self, session: &Session) {
        let now = session.notes.load(Relaxed);
        for sentence in notes::sentences(now & !self.0) {
            say!("{sentence}");
        }
        self.0 |= now;
    }
}
