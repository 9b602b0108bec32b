//! Results: figures with the bars that they are to reach, as they are measured and as they are kept.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Native is 1; less is better.
    Times,
    /// Native is 1; more is better.
    Share,
    /// Nanoseconds more than native.
    Nanoseconds,
    /// Milliseconds more than native.
    Milliseconds,
    /// Bytes.
    Bytes,
    /// Bytes of log for each operation.
    BytesEach,
    /// Megabytes of log for each minute of a native run.
    MegabytesAMinute,
}

/// The side of a command that a figure is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Recording.
    Record,
    /// Replaying.
    Replay,
    /// What a recording leaves on disk.
    Trace,
    /// The log alone, without what was read and kept.
    Log,
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Of which side.
    pub side: Side,
    /// The figure.
    pub value: f64,
    /// Counted in this.
    pub unit: Unit,
    /// What it should be at most ([`Unit::Share`]: at least); `None` where nothing is demanded.
    pub bar: Option<f64>,
}

impl Figure {
    /// Whether the figure reaches its bar; `None` without one.
    pub fn met(&self) -> Option<bool> {
        self.bar.map(|bar| match self.unit {
            Unit::Share => self.value >= bar,
            _ => self.value <= bar,
        })
    }

    /// "met" or "missed"; empty without a bar.
    pub fn verdict(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    /// The figure as text.
    pub fn shown(&self) -> String {
        show(self.value, self.unit)
    }

    /// The bar as text.
    pub fn bar_shown(&self) -> String {
        match (self.bar, self.unit) {
            (None, _) => "-".into(),
            (Some(bar), Unit::Share) => format!("≥ {}", show(bar, self.unit)),
            (Some(bar), _) => format!("≤ {}", show(bar, self.unit)),
        }
    }
}

fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Times => format!("{value:.2}×"),
        Unit::Share => format!("{value:.2}"),
        Unit::Nanoseconds => format!("{value:.0} ns"),
        Unit::Milliseconds => format!("{value:.2} ms"),
        Unit::Bytes => format!("{:.1} MB", value / 1e6),
        Unit::BytesEach => format!("{value:.3} bytes each"),
        Unit::MegabytesAMinute => format!("{value:.1} MB a minute"),
    }
}

/// What is known of one kind of run in a row: native, record or replay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Runs {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What each run came to, in seconds, nanoseconds or requests a second (see `unit`).
    pub values: Vec<f64>,
    /// The unit of the values, as text.
    pub unit: Cow<'static, str>,
    /// Seconds of processor time of each run, of all processes together; empty where it was not measured.
    pub processor: Vec<f64>,
}

/// One row of the table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The name it is asked for by.
    pub name: Cow<'static, str>,
    /// What is measured, for people.
    pub title: String,
    /// The commands, as a shell would take them.
    pub commands: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The runs behind them.
    pub runs: Vec<Runs>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
    /// A table in Markdown, for rows that are several.
    pub table: String,
    /// Why there are no figures, if so.
    pub missing: Option<String>,
}

/// The middle value; of an even number, the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_share_is_better_when_it_is_more() {
        let f = |unit, value| Figure {
            side: Side::Record,
            value,
            unit,
            bar: Some(0.75),
        };
        assert_eq!(f(Unit::Share, 0.8).met(), Some(true));
        assert_eq!(f(Unit::Share, 0.7).met(), Some(false));
        assert_eq!(f(Unit::Times, 0.8).met(), Some(false));
        assert_eq!(f(Unit::Share, 0.8).bar_shown(), "≥ 0.75");
    }
}
