//! Commands of ours, which gdb sends as they are (`monitor when`), and the names under which gdb knows them.

use crate::target::Session;
use crate::DebugError;
use gdbstub::target::ext::monitor_cmd::{outputln, ConsoleOutput, MonitorCmd};

/// Commands for gdb itself. A motion of ours is made as a reverse-continue: gdb sees where it has led, and does not step off breakpoints
/// first.
pub const COMMANDS: &str = "\
define when
monitor when
end
document when
How many events of the recording have happened, and whose the next one is.
end
define run-to
monitor run-to $arg0
reverse-continue
end
document run-to
run-to EVENT: go, forward or back, to where EVENT events of the recording have happened.
end
";

const HELP: &str = "\
when            how many events have happened
checkpoints     how many places can be gone back to at once, and what memory that takes
state           hashes of the memory and of all threads' registers, the same whenever this place is come to
run-to EVENT    the next motion, whatever it is, leads to where EVENT events have happened";

impl MonitorCmd for Session {
    fn handle_monitor_cmd(
        &mut self,
        cmd: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), DebugError> {
        let text = String::from_utf8_lossy(cmd);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["when"] => outputln!(out, "{}", self.when()?),
            ["run-to", event] => match event.parse() {
                Ok(event) => self.goal = Some(event),
                Err(_) => outputln!(out, "{event} is no number of an event"),
            },
            ["state"] => outputln!(out, "{}", self.debuggee()?.state_in_words()?),
            ["checkpoints"] => {
                let kept = &self.debuggee()?.checkpoints;
                let (n, size) = (kept.len(), kept.memory() >> 10);
                outputln!(out, "{n} checkpoints, which take {size} KiB");
            }
            _ => outputln!(out, "{HELP}"),
        }
        Ok(())
    }
}

impl Session {
    /// Where the replay is, in words.
    fn when(&mut self) -> Result<String, DebugError> {
        let d = self.debuggee()?;
        let (now, all) = (d.events(), d.timeline.len());
        let next = d.timeline.event(now).filter(|_| now < d.timeline.end);
        let next = next.map(|e| e.slot as usize);
        let whose = match next.filter(|slot| d.slots().any(|s| s == *slot)) {
            Some(slot) => format!("; the next one is thread {}'s", d.visible(slot)),
            None => String::new(),
        };
        Ok(format!("event {now} of {all}{whose}"))
    }
}
