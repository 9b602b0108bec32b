//! What gdb's script is asked for `origin`, and what it tells: where a value is, and the steps of its trail.

use crate::ask::stream::Place;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the script is asked.
#[derive(Serialize, Clone)]
pub struct Question {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    pub depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Value>,
}

/// What the script tells.
#[derive(Deserialize)]
pub struct Told {
    pub start: Option<Start>,
    pub step: Option<Step>,
}

/// What was asked for.
#[derive(Deserialize)]
pub struct Start {
    pub place: String,
    pub value: String,
    pub event: u64,
    pub thread: u32,
    pub at: Place,
    pub symbol: Option<String>,
}

/// A step of the trail.
#[derive(Deserialize, Clone, Default)]
#[serde(default)]
pub struct Step {
    pub level: u32,
    pub what: String,
    pub kind: String,
    pub place: Option<Place>,
    pub caller: Option<Place>,
    /// The place is in a library.
    pub library: bool,
    pub event: Option<u64>,
    pub thread: Option<u32>,
    pub to: Option<String>,
    pub from: Option<String>,
    pub at: Option<String>,
    pub to_symbol: Option<String>,
    pub from_symbol: Option<String>,
    pub at_symbol: Option<String>,
    pub bytes: Option<String>,
    pub number: Option<String>,
    pub first: Option<u32>,
    pub count: Option<u32>,
    pub register: Option<String>,
    pub code: Option<String>,
    pub why: Option<String>,
}

impl Step {
    /// Its place in words: that of the library's caller with it.
    pub fn place_in_words(&self) -> String {
        match (&self.place, &self.caller) {
            (Some(place), Some(caller)) => format!("{}, called by {}", place.text(), caller.text()),
            (Some(place), None) => place.text(),
            _ => "??".into(),
        }
    }
}

/// Copies by one line of the program, or by one call of a library, as one.
pub fn merged(steps: Vec<Step>) -> Vec<Step> {
    let key = |s: &Step| {
        let place = s.place.clone().unwrap_or_default();
        let line = place.line.filter(|_| !s.library);
        let caller = s.caller.as_ref().map(|c| (c.function.clone(), c.line));
        (s.level, s.thread, place.function, line, caller)
    };
    let mut all: Vec<Step> = Vec::new();
    for step in steps {
        match all.last_mut() {
            Some(last) if last.what == "copy" && step.what == "copy" && key(last) == key(&step) => {
                (last.from, last.from_symbol) = (step.from, step.from_symbol);
            }
            _ => all.push(step),
        }
    }
    all
}
