//! How long an answer may take, and how large it may be.

use anyhow::{ensure, Result};
use serde_json::{json, Map, Value};
use std::time::Duration;
use tokio::time::Instant;

/// Seconds that a tool may take when nothing else is asked for, ...
pub const SECONDS: u64 = 30;
/// ... and at most.
pub const MOST_SECONDS: u64 = 600;
/// Bytes of an answer when nothing else is asked for, ...
pub const BYTES: u64 = 8 << 10;
/// ... at most, ...
pub const MOST_BYTES: u64 = 256 << 10;
/// ... and how few can be asked for.
pub const FEWEST_BYTES: u64 = 512;

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// When it has to be over.
    pub end: Instant,
    /// The seconds that were meant.
    pub seconds: u64,
    /// Bytes of the answer.
    pub bytes: usize,
}

impl Limits {
    /// Takes the limits out of the arguments of a call.
    ///
    /// # Errors
    /// When they are no numbers, or out of bounds.
    pub fn take(arguments: &mut Map<String, Value>) -> Result<Limits> {
        let mut number = |name: &str, usual: u64, least: u64, most: u64| -> Result<u64> {
            let Some(value) = arguments.remove(name).filter(|v| !v.is_null()) else {
                return Ok(usual);
            };
            let number = value.as_u64().filter(|n| (least..=most).contains(n));
            ensure!(
                number.is_some(),
                "{name} is a whole number from {least} to {most}, not {value}"
            );
            Ok(number.unwrap_or(usual))
        };
        let seconds = number("time_limit_s", SECONDS, 1, MOST_SECONDS)?;
        let bytes = number("max_bytes", BYTES, FEWEST_BYTES, MOST_BYTES)? as usize;
        Ok(Limits {
            end: Instant::now() + Duration::from_secs(seconds),
            seconds,
            bytes,
        })
    }

    /// Adds them to what a tool says of its arguments.
    pub fn describe(schema: &mut Map<String, Value>) {
        let all = schema
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(all) = all {
            all.insert(
                "time_limit_s".into(),
                json!({
                    "type": "integer", "minimum": 1, "maximum": MOST_SECONDS, "default": SECONDS,
                    "description": "Seconds after which the call ends with what it has",
                }),
            );
            all.insert("max_bytes".into(), json!({
                "type": "integer", "minimum": FEWEST_BYTES, "maximum": MOST_BYTES, "default": BYTES,
                "description": "Most bytes of the answer",
            }));
        }
    }

    /// What to say when the time is over.
    pub fn are_over(&self) -> anyhow::Error {
        anyhow::anyhow!(
            "the time limit of {} s was over (time_limit_s may be up to {MOST_SECONDS})",
            self.seconds
        )
    }
}
