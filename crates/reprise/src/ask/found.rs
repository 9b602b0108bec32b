//! Values that were found, with their places: rows of numbers, brought together with what gdb tells of their types and places.

use super::stream::{Ended, Next, Place, Stream};
use anyhow::{bail, Result};
use reprise_debug::collect::Row;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// How numbers of a type are shown.
#[derive(Deserialize, Clone, Debug)]
struct Shape {
    bytes: u32,
    signed: bool,
    /// Those that are not shown as numbers.
    texts: HashMap<i128, String>,
}

impl Shape {
    /// A number of this type, of which a word has the lowest bytes.
    fn text(&self, word: u64) -> Cow<'_, str> {
        let above = 64u32.saturating_sub(8 * self.bytes).min(63);
        let number = match self.signed {
            true => i128::from((word << above) as i64 >> above),
            false => i128::from(word << above >> above),
        };
        match self.texts.get(&number) {
            Some(text) => text.as_str().into(),
            None => number.to_string().into(),
        }
    }
}

/// What the script tells.
#[derive(Deserialize)]
struct Told {
    place: Option<Place>,
    shape: Option<Shape>,
    before: Option<String>,
    value: Option<String>,
    pc: Option<u64>,
    event: Option<u64>,
    thread: Option<u32>,
}

/// A value.
pub struct Found<'a> {
    /// Where; `None`: before the first write.
    pub place: Option<&'a Place>,
    /// Number of the event that came next.
    pub event: u64,
    /// The thread, as the program knew it; 0 where there is none.
    pub thread: u32,
    /// The value, as gdb prints it.
    pub value: Cow<'a, str>,
}

/// A place that is known, and how numbers are shown there.
type Known = (Place, Option<Shape>);

/// Hands all values to `take`, and asks for a `rest` when nothing more has come for the moment.
///
/// # Errors
/// What gdb says of the question, and what the two say.
pub fn all(
    stream: &mut Stream,
    mut take: impl FnMut(&Found<'_>) -> Result<()>,
    mut rest: impl FnMut() -> Result<()>,
) -> Result<Ended> {
    let mut places: HashMap<u64, Known> = HashMap::new();
    // Values at places that are not known yet.
    let mut early: VecDeque<Row> = VecDeque::new();
    loop {
        match stream.next::<Told>()? {
            Next::Rest => rest()?,
            Next::Ended(ended) => {
                rest()?;
                return Ok(ended);
            }
            Next::Row(row) => match places.get(&row.pc) {
                Some(known) if early.is_empty() => take(&found(row, known)?)?,
                _ => early.push_back(row),
            },
            Next::Told(told) => {
                if let Some(place) = told.place {
                    places.insert(place.pc, (place, told.shape));
                }
                while let Some(known) = early.front().and_then(|row| places.get(&row.pc)) {
                    if let Some(row) = early.pop_front() {
                        take(&found(row, known)?)?;
                    }
                }
                let known = told.pc.and_then(|pc| places.get(&pc));
                if let Some(value) = told.before.or(told.value) {
                    take(&Found {
                        place: known.map(|(place, _)| place),
                        event: told.event.unwrap_or(0),
                        thread: told.thread.unwrap_or(0),
                        value: value.into(),
                    })?;
                }
            }
        }
    }
}

/// A value at a place that is known.
fn found(row: Row, known: &Known) -> Result<Found<'_>> {
    let (place, Some(shape)) = known else {
        bail!("a value came without its type: this is a bug in reprise");
    };
    Ok(Found {
        place: Some(place),
        event: row.event,
        thread: row.thread,
        value: shape.text(row.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_their_type_says() {
        let shape = |bytes, signed| Shape {
            bytes,
            signed,
            texts: HashMap::from([(-1, "NONE".into())]),
        };
        assert_eq!(shape(4, true).text(0xffff_fffe), "-2");
        assert_eq!(shape(4, true).text(0xffff_ffff), "NONE");
        assert_eq!(shape(4, false).text(0xffff_ffff_ffff_fffe), "4294967294");
        assert_eq!(shape(8, false).text(u64::MAX), "18446744073709551615");
        assert_eq!(shape(2, true).text(0x1_8000), "-32768");
    }
}
