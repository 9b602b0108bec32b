//! Answers of many parts, of which as many are given as fit; with where the next ones begin.

use super::limits::Limits;
use serde_json::{json, Map, Value};

/// What is kept free for the end of an answer.
const TAIL: usize = 96;
/// Bytes of one text in an answer, of which there may be many.
const TEXT: usize = 1 << 10;

/// A part of an answer: the items from `offset` on that fit, under `name`, after what is in `head`. `total`: how many there are, where that is known.
/// `next` in the answer: the offset to go on from.
pub fn page(
    mut head: Map<String, Value>,
    name: &str,
    items: impl Iterator<Item = Value>,
    offset: usize,
    limits: &Limits,
) -> Value {
    let mut room = room(&head, limits);
    let mut listed = Vec::new();
    let mut next = None;
    for mut item in items {
        shorten(&mut item, TEXT.min(limits.bytes / 4));
        let size = item.to_string().len() + 1;
        // One is given in any case: else nobody would get on.
        if size > room && !listed.is_empty() {
            next = Some(offset + listed.len());
            break;
        }
        room = room.saturating_sub(size);
        listed.push(item);
    }
    head.insert(name.into(), listed.into());
    if let Some(next) = next {
        head.insert("next".into(), json!({ "offset": next }));
    }
    head.into()
}

/// Bytes that are left beside this.
pub fn room(head: &Map<String, Value>, limits: &Limits) -> usize {
    let used = Value::Object(head.clone()).to_string().len() + TAIL;
    limits.bytes.saturating_sub(used)
}

/// The last place up to `most` where a text can be cut.
pub fn boundary(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// Cuts texts that are longer than so many bytes.
pub fn shorten(value: &mut Value, most: usize) {
    match value {
        Value::String(text) if text.len() > most => {
            let left = text.len() - most;
            text.truncate(boundary(text, most));
            text.push_str(&format!("... ({left} bytes more)"));
        }
        Value::Array(all) => all.iter_mut().for_each(|v| shorten(v, most)),
        Value::Object(all) => all.values_mut().for_each(|v| shorten(v, most)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_fit_and_lead_to_each_other() {
        let limits = Limits {
            end: tokio::time::Instant::now(),
            seconds: 1,
            bytes: 600,
        };
        let all: Vec<Value> = (0..100)
            .map(|n| json!({"n": n, "text": "x".repeat(n)}))
            .collect();
        let (mut offset, mut seen) = (0, Vec::new());
        for _ in 0..100 {
            let rest = all[offset..].iter().cloned();
            let one = page(Map::new(), "items", rest, offset, &limits);
            assert!(one.to_string().len() <= 600, "{one}");
            seen.extend(
                one["items"]
                    .as_array()
                    .expect("items")
                    .iter()
                    .map(|i| i["n"].as_u64()),
            );
            match one["next"]["offset"].as_u64() {
                Some(next) => offset = next as usize,
                None => break,
            }
        }
        assert_eq!(seen, (0..100).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut value = json!(["äää", {"a": "short"}]);
        shorten(&mut value, 3);
        assert_eq!(value[0], "ä... (3 bytes more)");
        assert_eq!(value[1]["a"], "sho... (2 bytes more)");
    }
}
