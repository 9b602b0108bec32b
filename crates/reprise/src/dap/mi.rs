//! What gdb says through its machine interface ("GDB/MI Output Syntax" of gdb's manual), line by line.
//!
//! A line is a record: the answer to a command (`^`), something that has happened (`*`, `=`), or text of a stream (`~`, `@`, `&`). Values become JSON: a tuple is an
//! object, a list an array, of which the names of elements are left out. All bytes are taken; what is no record is nothing.

use serde_json::{Map, Value};

/// How deep values may be nested.
const MOST_DEEP: usize = 64;

/// What a line says.
#[derive(Debug, PartialEq)]
pub enum Record {
    /// The answer to the command that had this number.
    Result {
        token: Option<u64>,
        class: String,
        results: Value,
    },
    /// The program has stopped, or runs.
    Exec { class: String, results: Value },
    /// Something else has changed.
    Notify { class: String, results: Value },
    /// What a command prints.
    Console(String),
    /// What the replay prints.
    Target(String),
    /// What gdb says of itself.
    Log(String),
    /// Ready for a command.
    Prompt,
}

/// What a line says; `None`: it is no record.
pub fn parse(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.trim_ascii_end() == b"(gdb)" {
        return Some(Record::Prompt);
    }
    let digits = line.iter().take_while(|b| b.is_ascii_digit()).count();
    let token = std::str::from_utf8(&line[..digits]).ok()?.parse().ok();
    let mut from = Parser {
        bytes: &line[digits..],
        depth: 0,
    };
    let kind = from.next()?;
    if matches!(kind, b'~' | b'@' | b'&') {
        let text = from.string()?;
        return Some(match kind {
            b'~' => Record::Console(text),
            b'@' => Record::Target(text),
            _ => Record::Log(text),
        });
    }
    if !matches!(kind, b'^' | b'*' | b'=') {
        return None;
    }
    let class = from.name()?;
    let mut all = Map::new();
    while from.eat(b',') {
        let (name, value) = from.result()?;
        all.insert(name, value);
    }
    if !from.bytes.is_empty() {
        return None;
    }
    let results = Value::Object(all);
    Some(match kind {
        b'^' => Record::Result {
            token,
            class,
            results,
        },
        b'*' => Record::Exec { class, results },
        _ => Record::Notify { class, results },
    })
}

struct Parser<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.bytes = &self.bytes[1..];
        }
        is_there
    }

    fn name(&mut self) -> Option<String> {
        let of_names = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let n = self.bytes.iter().take_while(of_names).count();
        let (name, rest) = self.bytes.split_at(n);
        self.bytes = rest;
        (n > 0).then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn result(&mut self) -> Option<(String, Value)> {
        let name = self.name()?;
        self.eat(b'=').then_some(())?;
        Some((name, self.value()?))
    }

    fn value(&mut self) -> Option<Value> {
        match self.peek()? {
            b'"' => self.string().map(Value::String),
            open @ (b'{' | b'[') => {
                self.depth += 1;
                if self.depth > MOST_DEEP {
                    return None;
                }
                self.next();
                let value = match open {
                    b'{' => self.tuple(),
                    _ => self.list(),
                };
                self.depth -= 1;
                value
            }
            _ => None,
        }
    }

    /// Up to its end. gdb also writes lists in these brackets (`script={"a","b"}`).
    fn tuple(&mut self) -> Option<Value> {
        if self.peek() == Some(b'"') {
            return self.elements(b'}');
        }
        let mut all = Map::new();
        if self.eat(b'}') {
            return Some(Value::Object(all));
        }
        loop {
            let (name, value) = self.result()?;
            all.insert(name, value);
            match self.next()? {
                b',' => {}
                b'}' => return Some(Value::Object(all)),
                _ => return None,
            }
        }
    }

    fn list(&mut self) -> Option<Value> {
        match self.eat(b']') {
            true => Some(Value::Array(Vec::new())),
            false => self.elements(b']'),
        }
    }

    fn elements(&mut self, end: u8) -> Option<Value> {
        let mut all = Vec::new();
        loop {
            let is_plain = matches!(self.peek()?, b'"' | b'{' | b'[');
            all.push(match is_plain {
                true => self.value()?,
                false => self.result()?.1,
            });
            match self.next()? {
                b',' => {}
                b if b == end => return Some(Value::Array(all)),
                _ => return None,
            }
        }
    }

    /// A string of C, whose bytes need not be UTF-8.
    fn string(&mut self) -> Option<String> {
        self.eat(b'"').then_some(())?;
        let mut text = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Some(String::from_utf8_lossy(&text).into_owned()),
                b'\\' => {
                    let escaped = self.next()?;
                    text.push(match escaped {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'a' => 7,
                        b'b' => 8,
                        b'f' => 12,
                        b'v' => 11,
                        b'e' => 27,
                        b'0'..=b'7' => self.octal(escaped),
                        other => other,
                    });
                }
                plain => text.push(plain),
            }
        }
    }

    /// A byte of up to three octal digits, of which the first has been read.
    fn octal(&mut self, first: u8) -> u8 {
        let mut byte = first - b'0';
        for _ in 0..2 {
            match self.peek() {
                Some(digit @ b'0'..=b'7') => {
                    byte = byte.wrapping_mul(8).wrapping_add(digit - b'0');
                    self.bytes = &self.bytes[1..];
                }
                _ => break,
            }
        }
        byte
    }
}

/// A text as an argument of a command.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // A command ends where a line ends; nothing else may look like that.
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A member that is a string.
pub fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// A member that is a number.
pub fn number(value: &Value, name: &str) -> Option<i64> {
    text(value, name).and_then(|t| t.parse().ok())
}

/// A member that is an address, as `0x55`.
pub fn address(value: &Value, name: &str) -> Option<u64> {
    text(value, name).and_then(hexadecimal)
}

/// A number as `0x55`, or in decimal digits.
pub fn hexadecimal(text: &str) -> Option<u64> {
    let text = text.split_whitespace().next()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A member that is a list; none is an empty one.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    match value.get(name) {
        Some(Value::Array(all)) => all,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn answers_of_commands() {
        let line = br#"12^done,bkpt={number="1",type="breakpoint",thread-groups=["i1"],times="0",locations=[{number="1.1",addr="0x01"},{number="1.2"}]}"#;
        let Some(Record::Result {
            token,
            class,
            results,
        }) = parse(line)
        else {
            panic!("{:?}", parse(line));
        };
        assert_eq!((token, class.as_str()), (Some(12), "done"));
        assert_eq!(results["bkpt"]["thread-groups"], json!(["i1"]));
        assert_eq!(results["bkpt"]["locations"][1]["number"], "1.2");
        assert_eq!(number(&results["bkpt"], "number"), Some(1));
        assert_eq!(address(&results["bkpt"]["locations"][0], "addr"), Some(1));
    }

    #[test]
    fn names_of_elements_are_left_out() {
        let line = br#"^done,stack=[frame={level="0",func="main"},frame={level="1"}]"#;
        let Some(Record::Result { token, results, .. }) = parse(line) else {
            panic!("{:?}", parse(line));
        };
        assert_eq!(token, None);
        assert_eq!(list(&results, "stack").len(), 2);
        assert_eq!(results["stack"][0]["func"], "main");
        assert_eq!(list(&results, "no such"), &[] as &[Value]);
    }

    #[test]
    fn lists_in_the_brackets_of_tuples() {
        let line = br#"=breakpoint-modified,bkpt={script={"silent","print 1"},empty={}}"#;
        let Some(Record::Notify { class, results }) = parse(line) else {
            panic!("{:?}", parse(line));
        };
        assert_eq!(class, "breakpoint-modified");
        assert_eq!(results["bkpt"]["script"], json!(["silent", "print 1"]));
        assert_eq!(results["bkpt"]["empty"], json!({}));
    }

    #[test]
    fn strings_are_bytes() {
        assert_eq!(
            parse(b"~\"a\\n\\\"b\\\" \\303\\244 \\377 \\\\\"\n"),
            Some(Record::Console("a\n\"b\" \u{e4} \u{fffd} \\".into()))
        );
        assert_eq!(parse(b"@\"\""), Some(Record::Target(String::new())));
        assert_eq!(parse(b"(gdb) \n"), Some(Record::Prompt));
    }

    #[test]
    fn what_is_no_record_is_nothing() {
        for line in [
            "",
            "text",
            "^",
            "^done,",
            "^done,a",
            "^done,a=",
            "^done,a={",
            "^done,a=[\"b\"",
            "~\"open",
            "~\"ends\\",
            "^done}",
            "*stopped,a=\"b\"c",
            "12",
            "^done,a={b=\"c\"]",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        let deep = format!("^done,a={}", "[".repeat(100_000));
        assert_eq!(parse(deep.as_bytes()), None);
    }

    #[test]
    fn an_argument_stays_one_line() {
        assert_eq!(
            quoted("a \"b\"\\\n-exec-run\u{7}"),
            r#""a \"b\"\\\n-exec-run ""#
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_nearly_a_record_is_taken(text in r#"[0-9]{0,3}[\^*=~@&]?[a-z]{0,4}(,?[a-z]{0,2}=?[\[\]{}"\\a0-7,=]{0,6}){0,9}"#) {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn text_comes_back(text in "[^\\p{C}]{0,60}") {
            let line = format!("~{}", quoted(&text));
            prop_assert_eq!(parse(line.as_bytes()), Some(Record::Console(text)));
        }
    }
}
