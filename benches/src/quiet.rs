//! Whether the machine has nothing else to do. Figures of a busy machine are wrong, and nobody sees it in them.

use anyhow::{bail, Result};
use std::fs::read_to_string;
use std::thread::sleep;
use std::time::Duration;

/// How long one look takes.
const LOOK: Duration = Duration::from_secs(1);
/// Looks until the machine counts as busy: what the row before has left behind (write-back, exits) is over by then.
const LOOKS: usize = 30;
/// The most of all processors' time that others may take meanwhile.
const MOST_BUSY: f64 = 0.03;

/// Waits until the machine is quiet.
///
/// # Errors
/// When it stays busy, with how busy.
pub fn wait() -> Result<()> {
    let mut busy = 1.0;
    for _ in 0..LOOKS {
        busy = look()?;
        if busy <= MOST_BUSY {
            return Ok(());
        }
    }
    bail!(
        "other processes want to run: for {} s they have taken more than {:.0} % of the processors' time, {:.0} % in the last one. \
         End them, or measure with --busy, which keeps nothing",
        LOOKS as u64 * LOOK.as_secs(),
        MOST_BUSY * 100.0,
        busy * 100.0
    )
}

/// The part of all processors' time that was taken during one look.
fn look() -> Result<f64> {
    let before = Ticks::read()?;
    sleep(LOOK);
    Ok(Ticks::read()?.busy_since(before))
}

/// Ticks of all processors together, from /proc/stat (proc_stat(5)).
#[derive(Clone, Copy, Debug)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    fn read() -> Result<Ticks> {
        match Ticks::parse(&read_to_string("/proc/stat")?) {
            Some(ticks) => Ok(ticks),
            None => bail!("/proc/stat does not begin with the processors' times"),
        }
    }

    /// From the first line: user, nice, system, idle, iowait, irq, softirq, steal, and guests' times, which are part of user's.
    fn parse(text: &str) -> Option<Ticks> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let numbers = line.split_whitespace().take(8).map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        Some(Ticks {
            idle: numbers.get(3)? + numbers.get(4)?,
            all: numbers.iter().sum(),
        })
    }

    fn busy_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let idle = self.idle.saturating_sub(before.idle) as f64;
        1.0 - (idle / all).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_two_processors() {
        let of = |text| Ticks::parse(text).unwrap();
        let before = of("cpu  100 0 50 1000 20 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = of("cpu  180 0 70 1090 30 0 0 0 7 0\n");
        assert!((after.busy_since(before) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_made_of_other_text() {
        assert!(Ticks::parse("").is_none());
        assert!(Ticks::parse("cpu  1 2 x 4 5 6 7 8").is_none());
        assert!(Ticks::parse("cpu  1 2 3").is_none());
    }
}
