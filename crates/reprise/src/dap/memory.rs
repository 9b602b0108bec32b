//! Memory and machine code.

use super::mi;
use super::session::Session;
use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

/// Most bytes that are read at once.
const MOST_BYTES: i64 = 1 << 20;
/// Most instructions that are shown at once.
const MOST_INSTRUCTIONS: i64 = 4096;
/// The longest instruction, in bytes.
const LONGEST: u64 = 15;

fn reference(arguments: &Value, offset: &str) -> Result<u64> {
    let text = arguments["memoryReference"].as_str();
    let at = text.and_then(mi::hexadecimal);
    let at = at.context("memoryReference is an address")?;
    let offset = arguments[offset].as_i64().unwrap_or(0);
    at.checked_add_signed(offset)
        .context("there are no such addresses")
}

/// As in RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { digit as char } else { '=' });
        }
    }
    text
}

impl Session {
    /// `readMemory`.
    ///
    /// # Errors
    /// When nothing of it can be read, gdb's words.
    pub fn read_memory(&mut self, arguments: &Value) -> Result<Value> {
        let at = reference(arguments, "offset")?;
        let count = arguments["count"].as_i64().context("count is a number")?;
        ensure!(
            (0..=MOST_BYTES).contains(&count),
            "count is from 0 to {MOST_BYTES}"
        );
        if count == 0 {
            return Ok(json!({"address": format!("{at:#x}")}));
        }
        let Ok(read) = self.mi(&format!("-data-read-memory-bytes {at:#x} {count}")) else {
            return Ok(json!({"address": format!("{at:#x}"), "unreadableBytes": count}));
        };
        // Several pieces where there are holes between.
        let first = mi::list(&read, "memory").first();
        let begin = first.and_then(|m| mi::address(m, "begin"));
        let text = first.and_then(|m| mi::text(m, "contents")).unwrap_or("");
        let bytes: Vec<u8> = text
            .as_bytes()
            .chunks(2)
            .filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
            .collect();
        if begin != Some(at) || bytes.is_empty() {
            return Ok(json!({"address": format!("{at:#x}"), "unreadableBytes": count}));
        }
        let unreadable = count - bytes.len() as i64;
        Ok(
            json!({"address": format!("{at:#x}"), "data": base64(&bytes), "unreadableBytes": unreadable}),
        )
    }

    /// `disassemble`.
    ///
    /// # Errors
    /// When more is wanted than is shown at once.
    pub fn disassemble(&mut self, arguments: &Value) -> Result<Value> {
        let at = reference(arguments, "offset")?;
        let skipped = arguments["instructionOffset"].as_i64().unwrap_or(0);
        let count = arguments["instructionCount"].as_i64();
        let count = count.context("instructionCount is a number")?;
        ensure!(
            (0..=MOST_INSTRUCTIONS).contains(&count)
                && skipped.unsigned_abs() <= MOST_INSTRUCTIONS as u64,
            "at most {MOST_INSTRUCTIONS} instructions are shown"
        );
        let before = skipped.min(0).unsigned_abs() as usize;
        let after = (skipped + count).max(0) as usize;
        let mut all = self.instructions_before(at, before);
        // As many as are wanted, where something is before.
        let missing = before - all.len();
        let behind = self.instructions(at, at.saturating_add(LONGEST * after as u64 + 1));
        all.extend(behind.into_iter().take(after));
        let nothing = |_| json!({"address": "0x0", "instruction": "(nothing known)", "presentationHint": "invalid"});
        let mut told: Vec<Value> = (0..missing).map(nothing).collect();
        for one in &all {
            told.push(self.instruction_for_client(one)?);
        }
        let first = skipped.max(0) as usize;
        let mut told: Vec<Value> = told.into_iter().skip(first).take(count as usize).collect();
        // The protocol wants exactly so many.
        while told.len() < count as usize {
            told.push(nothing(0));
        }
        Ok(json!({"instructions": told}))
    }

    /// Those between two addresses, as far as there is code.
    fn instructions(&mut self, from: u64, to: u64) -> Vec<Value> {
        let mut end = to;
        // Up to the end of what is mapped: the stretch is halved until it can be read.
        while end > from {
            let listed = self.mi(&format!("-data-disassemble -s {from:#x} -e {end:#x} -- 5"));
            if let Ok(listed) = listed {
                return flat(mi::list(&listed, "asm_insns"));
            }
            end = from + (end - from) / 2;
        }
        Vec::new()
    }

    /// So many that come before an address: there is one way to read them from where a function begins, else one is guessed that leads there.
    fn instructions_before(&mut self, at: u64, n: usize) -> Vec<Value> {
        if n == 0 {
            return Vec::new();
        }
        let begins = self
            .mi(&format!("-data-disassemble -a {at:#x} -- 0"))
            .ok()
            .and_then(|f| mi::address(mi::list(&f, "asm_insns").first()?, "address"));
        let far = at.saturating_sub(LONGEST * n as u64);
        let mut starts = Vec::new();
        if let Some(begins) = begins.filter(|b| *b < at) {
            starts.push(begins);
            // What comes before the function, by luck.
            starts.extend((0..LONGEST).map(|k| far.saturating_add(k)));
        } else {
            starts.extend((0..LONGEST).map(|k| far.saturating_add(k)));
        }
        let mut best: Vec<Value> = Vec::new();
        for from in starts {
            let listed = self.mi(&format!("-data-disassemble -s {from:#x} -e {at:#x} -- 5"));
            let Ok(listed) = listed else { continue };
            let all = flat(mi::list(&listed, "asm_insns"));
            let leads = all.last().is_some_and(|last| {
                let begin = mi::address(last, "address");
                let bytes =
                    mi::text(last, "opcodes").map_or(0, |o| o.split_whitespace().count() as u64);
                begin.is_some_and(|b| b + bytes == at)
            });
            if leads && all.len() > best.len() {
                best = all;
            }
            if best.len() >= n {
                break;
            }
        }
        let too_many = best.len().saturating_sub(n);
        best.drain(..too_many);
        best
    }

    fn instruction_for_client(&mut self, one: &Value) -> Result<Value> {
        let mut told = json!({"address": one["address"], "instruction": one["inst"]});
        if let Some(bytes) = one.get("opcodes") {
            told["instructionBytes"] = bytes.clone();
        }
        if let Some(function) = mi::text(one, "func-name") {
            let offset = mi::number(one, "offset").unwrap_or(0);
            told["symbol"] = match offset {
                0 => function.into(),
                _ => format!("{function}+{offset}").into(),
            };
        }
        if let (Some(line), Some(source)) = (mi::number(one, "line"), self.source(one)?) {
            told["line"] = self.line_for(line).into();
            told["location"] = source;
        }
        Ok(told)
    }
}

/// Instructions that gdb has put under their lines, each with its own.
fn flat(listed: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for one in listed {
        let Some(inner) = one.get("line_asm_insn").and_then(Value::as_array) else {
            all.push(one.clone());
            continue;
        };
        for instruction in inner {
            let mut instruction = instruction.clone();
            for name in ["line", "file", "fullname"] {
                if let Some(value) = one.get(name) {
                    instruction[name] = value.clone();
                }
            }
            all.push(instruction);
        }
    }
    all.sort_by_key(|one| mi::address(one, "address"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_in_the_rfc() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| base64(t.as_bytes()));
        let wanted = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        assert_eq!(all, wanted);
        assert_eq!(base64(&[255, 254]), "//4=");
    }

    #[test]
    fn instructions_get_the_line_they_are_of() {
        let listed = json!([
            {"line": "2", "file": "a.c", "line_asm_insn": [{"address": "0x4"}]},
            {"line": "1", "file": "a.c", "line_asm_insn": [{"address": "0x2"}]},
            {"address": "0x6"},
        ]);
        let all = flat(listed.as_array().expect("a list"));
        let lines: Vec<Option<&str>> = all.iter().map(|i| mi::text(i, "line")).collect();
        assert_eq!(lines, [Some("1"), Some("2"), None]);
    }
}
