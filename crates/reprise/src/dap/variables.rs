//! Values: scopes, variables and their parts, expressions. They are gdb's variable objects, and so its pretty printers'.
//!
//! What is told is told for one moment: with the next motion all of it is forgotten.

use super::frames::Frame;
use super::mi::{self, quoted};
use super::session::Session;
use anyhow::{bail, Context, Result};
use serde_json::{json, Value};
use std::collections::HashMap;

/// Parts that are told of at once; the rest is a part of its own.
const MOST_PARTS: i64 = 1000;
/// The first part that can be asked for.
const MOST_START: i64 = 1 << 40;
/// Variable objects that gdb keeps of one moment.
const MOST_OBJECTS: usize = 200_000;
/// Characters of a line that shows a value which has parts.
const MOST_SUMMARY: usize = 300;
/// Names that gdb gives to parts which C++ only has in its source.
const ACCESS: [&str; 3] = ["public", "private", "protected"];

/// What has parts.
#[derive(Clone, Debug)]
enum Whole {
    Locals(Frame),
    Registers(Frame),
    /// Variables of a function of Python's.
    Python(Frame),
    /// Where the replay is.
    Recording,
    /// A variable object, from this part on.
    Object {
        frame: Frame,
        name: String,
        from: i64,
        is_map: bool,
    },
    /// An expression, of which nothing was asked yet.
    Expression {
        frame: Frame,
        text: String,
    },
    /// So many elements of an array, from this one on.
    Slice {
        frame: Frame,
        text: String,
        from: i64,
        count: i64,
    },
}

/// What was told of values.
#[derive(Default)]
pub struct Variables {
    wholes: Vec<Whole>,
    /// Those that were told of before it last moved.
    before: i64,
    /// Variable objects that gdb keeps for us.
    objects: Vec<String>,
    /// The variable object, or the expression, of a part that was told of.
    parts: HashMap<(i64, String), Part>,
}

/// A part by its name.
#[derive(Clone, Debug)]
pub enum Part {
    /// A variable object.
    Object(String),
    /// An expression in a frame.
    Expression(Frame, String),
}

impl Variables {
    fn tell(&mut self, whole: Whole) -> i64 {
        self.wholes.push(whole);
        self.before + self.wholes.len() as i64
    }

    fn whole(&self, reference: i64) -> Result<Whole> {
        let i = reference.checked_sub(self.before + 1);
        let whole = i.and_then(|i| self.wholes.get(usize::try_from(i).ok()?));
        whole
            .cloned()
            .context("these variables are of another moment: ask for the scopes again")
    }

    /// A part that was told of.
    pub fn part(&self, reference: i64, name: &str) -> Option<Part> {
        self.parts.get(&(reference, name.to_string())).cloned()
    }
}

fn options(frame: Frame) -> String {
    format!("--thread {} --frame {}", frame.thread, frame.level)
}

/// Can gdb be asked for elements of this type by `expression[from]@count`?
fn is_array(kind: &str) -> bool {
    kind.ends_with(']')
}

impl Session {
    /// Nothing of what was told holds any more.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn forget_values(&mut self) -> Result<()> {
        self.frames.forget();
        let v = &mut self.variables;
        v.before += v.wholes.len() as i64;
        v.wholes.clear();
        v.parts.clear();
        for name in std::mem::take(&mut v.objects) {
            let _ = self.mi(&format!("-var-delete {name}"));
        }
        Ok(())
    }

    /// `scopes`.
    ///
    /// # Errors
    /// When there is no such frame.
    pub fn scopes(&mut self, arguments: &Value) -> Result<Value> {
        let frame = self.frames.frame(&arguments["frameId"])?;
        if frame.python.is_some() {
            let locals = self.variables.tell(Whole::Python(frame));
            let recording = self.variables.tell(Whole::Recording);
            return Ok(json!({"scopes": [
                {"name": "Python locals", "presentationHint": "locals", "variablesReference": locals, "expensive": false},
                {"name": "Recording", "variablesReference": recording, "expensive": false},
            ]}));
        }
        let locals = self.variables.tell(Whole::Locals(frame));
        let registers = self.variables.tell(Whole::Registers(frame));
        let recording = self.variables.tell(Whole::Recording);
        Ok(json!({"scopes": [
            {"name": "Locals", "presentationHint": "locals", "variablesReference": locals, "expensive": false},
            {"name": "Registers", "presentationHint": "registers", "variablesReference": registers, "expensive": true},
            {"name": "Recording", "variablesReference": recording, "expensive": false},
        ]}))
    }

    /// `variables`.
    ///
    /// # Errors
    /// What gdb says.
    pub fn variables(&mut self, arguments: &Value) -> Result<Value> {
        let reference = arguments["variablesReference"]
            .as_i64()
            .context("variablesReference is a number")?;
        let start = arguments["start"]
            .as_i64()
            .unwrap_or(0)
            .clamp(0, MOST_START);
        let count = arguments["count"].as_i64().filter(|n| *n > 0);
        let all = match self.variables.whole(reference)? {
            Whole::Locals(frame) => self.locals(reference, frame)?,
            Whole::Registers(frame) => self.registers(frame)?,
            Whole::Python(frame) => self.python_locals(frame),
            Whole::Recording => self.recording()?,
            Whole::Expression { frame, text } => {
                let object = self.create(frame, &text)?;
                match (self.is_long_array(&object), count) {
                    (Some(n), None) => self.slices(frame, &text, 0, n),
                    (Some(n), Some(count)) => {
                        let start = start.min(n);
                        self.elements(reference, frame, &text, start, count.min(n - start))?
                    }
                    (None, _) => {
                        let name = mi::text(&object, "name").unwrap_or("").to_string();
                        let is_map = mi::text(&object, "displayhint") == Some("map");
                        self.parts((reference, frame), &name, start, count, is_map)?
                    }
                }
            }
            Whole::Slice {
                frame,
                text,
                from,
                count: all,
            } => {
                let first = from + start.min(all);
                let count = count.unwrap_or(all).min(all - start.min(all));
                self.elements(reference, frame, &text, first, count)?
            }
            Whole::Object {
                frame,
                name,
                from,
                is_map,
            } => self.parts((reference, frame), &name, from + start, count, is_map)?,
        };
        Ok(json!({"variables": all}))
    }

    fn locals(&mut self, reference: i64, frame: Frame) -> Result<Vec<Value>> {
        let listed = self.mi(&format!(
            "-stack-list-variables {} --skip-unavailable --simple-values",
            options(frame)
        ))?;
        let mut all = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for one in mi::list(&listed, "variables") {
            let name = mi::text(one, "name").unwrap_or("");
            // One that is hidden by another of its name can't be named.
            if name.is_empty() || seen.contains(&name) {
                continue;
            }
            seen.push(name);
            all.push(self.named(reference, frame, name, one));
        }
        Ok(all)
    }

    /// A variable, of which gdb has told a value if it is a simple one.
    fn named(&mut self, reference: i64, frame: Frame, name: &str, one: &Value) -> Value {
        let kind = mi::text(one, "type").unwrap_or("");
        let part = Part::Expression(frame, name.to_string());
        self.variables
            .parts
            .insert((reference, name.to_string()), part);
        // What has no parts, in all languages' words for pointers and arrays.
        let is_simple = !kind.contains(['*', '&', '[']);
        let mut told = match mi::text(one, "value") {
            Some(value) if is_simple => json!({"value": value, "variablesReference": 0}),
            _ => match self.value_of(frame, name) {
                Ok(told) => told,
                Err(why) => json!({"value": format!("<{why}>"), "variablesReference": 0}),
            },
        };
        told["name"] = name.into();
        told["type"] = kind.into();
        told["evaluateName"] = name.into();
        told
    }

    fn registers(&mut self, frame: Frame) -> Result<Vec<Value>> {
        let named = self.mi(&format!("-data-list-register-names {}", options(frame)))?;
        // Vectors fill pages; they can be asked for by name.
        let values = self.mi(&format!(
            "-data-list-register-values {} --skip-unavailable r {}",
            options(frame),
            (0..=24)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        ))?;
        let names = mi::list(&named, "register-names");
        let registers = mi::list(&values, "register-values").iter();
        Ok(registers
            .filter_map(|one| {
                let number = mi::number(one, "number")? as usize;
                let name = names.get(number)?.as_str()?;
                let value = mi::text(one, "value")?;
                Some(
                    json!({"name": name, "value": value, "variablesReference": 0,
                    "evaluateName": format!("${name}")}),
                )
            })
            .collect())
    }

    fn recording(&mut self) -> Result<Vec<Value>> {
        let (now, all) = self.when()?;
        let subject = self.subject.as_ref().context("there is no recording")?;
        let mut told = vec![
            ("event", now.to_string()),
            ("events", all.to_string()),
            ("process", subject.pid.to_string()),
            ("trace", subject.dir.display().to_string()),
        ];
        if let Some(status) = subject.wait_status {
            let how = match crate::record::crash(status) {
                Some(signal) => signal.to_string(),
                None if libc::WIFEXITED(status) => {
                    format!("exit status {}", libc::WEXITSTATUS(status))
                }
                None => format!("signal {}", libc::WTERMSIG(status)),
            };
            told.push(("ends with", how));
        }
        let told = told.into_iter();
        Ok(told
            .map(|(name, value)| json!({"name": name, "value": value, "variablesReference": 0}))
            .collect())
    }

    /// A variable object for an expression.
    fn create(&mut self, frame: Frame, text: &str) -> Result<Value> {
        if self.variables.objects.len() >= MOST_OBJECTS {
            bail!("{MOST_OBJECTS} values were told of since it last moved: move it first");
        }
        let (options, text) = (options(frame), quoted(text));
        let object = match self.mi(&format!("-var-create {options} - * {text}")) {
            Ok(object) => object,
            // It only says that it can't; this says why.
            Err(why) => {
                self.mi(&format!("-data-evaluate-expression {options} {text}"))?;
                return Err(why);
            }
        };
        let name = mi::text(&object, "name").context("gdb names no variable")?;
        self.variables.objects.push(name.to_string());
        Ok(object)
    }

    /// An expression's value, and a reference to its parts.
    ///
    /// # Errors
    /// What gdb says.
    pub fn value_of(&mut self, frame: Frame, text: &str) -> Result<Value> {
        let object = self.create(frame, text)?;
        if let Some(n) = self.is_long_array(&object) {
            let text = text.to_string();
            let reference = self.variables.tell(Whole::Expression { frame, text });
            let mut told = json!({"value": shown(&object), "type": object["type"], "variablesReference": reference});
            if self.client.paging {
                told["indexedVariables"] = n.into();
            }
            return Ok(told);
        }
        Ok(self.object_for_client(frame, &object, Some(text)))
    }

    /// A C array of more parts than are told of at once: how many.
    fn is_long_array(&self, object: &Value) -> Option<i64> {
        let kind = mi::text(object, "type")?;
        let n = mi::number(object, "numchild")?;
        (is_array(kind) && n > MOST_PARTS && object.get("dynamic").is_none()).then_some(n)
    }

    fn object_for_client(&mut self, frame: Frame, object: &Value, text: Option<&str>) -> Value {
        let has_parts = mi::number(object, "numchild").is_some_and(|n| n > 0)
            || mi::text(object, "has_more") == Some("1")
            || (mi::text(object, "dynamic") == Some("1")
                && mi::text(object, "displayhint") != Some("string"));
        let mut told = json!({"value": self.summary(frame, object, text), "variablesReference": 0});
        if let Some(kind) = object.get("type") {
            told["type"] = kind.clone();
        }
        if let (true, Some(name)) = (has_parts, mi::text(object, "name")) {
            let is_map = mi::text(object, "displayhint") == Some("map");
            let whole = Whole::Object {
                frame,
                name: name.to_string(),
                from: 0,
                is_map,
            };
            told["variablesReference"] = self.variables.tell(whole).into();
        }
        if let Some(at) = mi::text(object, "value").filter(|v| v.starts_with("0x")) {
            let at = at.split_whitespace().next().unwrap_or(at);
            told["memoryReference"] = at.into();
        }
        told
    }

    /// Stretches of a long array.
    fn slices(&mut self, frame: Frame, text: &str, start: i64, all: i64) -> Vec<Value> {
        let mut told = Vec::new();
        let mut from = start;
        let step = (MOST_PARTS..)
            .step_by(MOST_PARTS as usize)
            .find(|s| all / s <= MOST_PARTS);
        let step = step.unwrap_or(MOST_PARTS);
        while from < start + all {
            let count = step.min(start + all - from);
            let reference = self.variables.tell(Whole::Slice {
                frame,
                text: text.to_string(),
                from,
                count,
            });
            told.push(
                json!({"name": format!("[{from}..{}]", from + count - 1), "value": "",
                "variablesReference": reference}),
            );
            from += count;
        }
        told
    }

    fn elements(
        &mut self,
        reference: i64,
        frame: Frame,
        text: &str,
        first: i64,
        count: i64,
    ) -> Result<Vec<Value>> {
        if count > MOST_PARTS {
            return Ok(self.slices(frame, text, first, count));
        }
        let object = self.create(frame, &format!("({text})[{first}]@{count}"))?;
        let name = mi::text(&object, "name").unwrap_or("").to_string();
        let mut all = self.parts((reference, frame), &name, 0, Some(count), false)?;
        for (one, number) in all.iter_mut().zip(first..) {
            one["name"] = format!("[{number}]").into();
            one["evaluateName"] = format!("({text})[{number}]").into();
        }
        Ok(all)
    }

    /// Parts of a variable object.
    fn parts(
        &mut self,
        of: (i64, Frame),
        name: &str,
        from: i64,
        count: Option<i64>,
        is_map: bool,
    ) -> Result<Vec<Value>> {
        let frame = of.1;
        let count = count.unwrap_or(MOST_PARTS).min(MOST_PARTS);
        // Of a map keys and values come in turns.
        let (first, n) = match is_map {
            true => (2 * from, 2 * count),
            false => (from, count),
        };
        let listed = self.mi(&format!(
            "-var-list-children --all-values {name} {first} {}",
            first + n
        ))?;
        let mut told = Vec::new();
        let children = mi::list(&listed, "children");
        if is_map {
            for pair in children.chunks(2) {
                let [key, value] = pair else { continue };
                let key = shown(key);
                told.push(self.part_for_client(of, &format!("[{key}]"), value));
            }
        } else {
            for child in children {
                let label = mi::text(child, "exp").unwrap_or("?");
                let has_no_type = mi::text(child, "type").is_none_or(str::is_empty);
                if has_no_type && ACCESS.contains(&label) {
                    let inner = mi::text(child, "name").unwrap_or("").to_string();
                    told.extend(self.parts(of, &inner, 0, None, false)?);
                    continue;
                }
                let is_number = label.bytes().all(|b| b.is_ascii_digit());
                let label = match is_number {
                    true => format!("[{label}]"),
                    false => label.to_string(),
                };
                told.push(self.part_for_client(of, &label, child));
            }
        }
        let taken = from + count;
        let all = mi::number(&listed, "numchild").unwrap_or(0);
        let has_more = mi::text(&listed, "has_more") == Some("1")
            || (children.len() as i64 == n && all > first + n);
        if has_more && (!self.client.paging || count == MOST_PARTS) {
            let whole = Whole::Object {
                frame,
                name: name.to_string(),
                from: taken,
                is_map,
            };
            let more = self.variables.tell(whole);
            told.push(json!({"name": format!("[{taken}...]"), "value": "more", "variablesReference": more}));
        }
        Ok(told)
    }

    fn part_for_client(&mut self, of: (i64, Frame), label: &str, child: &Value) -> Value {
        let (reference, frame) = of;
        let mut told = self.object_for_client(frame, child, None);
        told["name"] = label.into();
        if let Some(name) = mi::text(child, "name") {
            let part = Part::Object(name.to_string());
            self.variables
                .parts
                .insert((reference, label.to_string()), part);
        }
        told
    }

    /// A value in a line. Of what has parts variable objects only say that; its printer says more.
    fn summary(&mut self, frame: Frame, object: &Value, text: Option<&str>) -> String {
        let value = shown(object);
        if value != "{...}" {
            return value;
        }
        let name = mi::text(object, "name").unwrap_or("");
        let text = match text {
            Some(text) => Some(text.to_string()),
            None => self
                .expression_of(&Part::Object(name.to_string()))
                .unwrap_or(None),
        };
        let Some(text) = text else { return value };
        let command = format!(
            "-data-evaluate-expression {} {}",
            options(frame),
            quoted(&text)
        );
        let Ok(told) = self.mi(&command) else {
            return value;
        };
        let mut line = shown(&told);
        if let Some((end, _)) = line.char_indices().nth(MOST_SUMMARY) {
            line.truncate(end);
            line.push_str("...");
        }
        line
    }

    /// The expression by which a part can be named; none, where a pretty printer has made it up.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn expression_of(&mut self, part: &Part) -> Result<Option<String>> {
        match part {
            Part::Expression(_, text) => Ok(Some(text.clone())),
            Part::Object(name) => {
                let path = self.mi(&format!("-var-info-path-expression {name}"));
                Ok(path.ok().and_then(|p| {
                    let path = mi::text(&p, "path_expr")?;
                    Some(path.to_string()).filter(|p| !p.is_empty())
                }))
            }
        }
    }

    fn python_locals(&self, frame: Frame) -> Vec<Value> {
        let locals = self.frames.python(frame).map(|f| f.locals.as_slice());
        let told = locals.unwrap_or_default().iter().map(
            |local| json!({"name": local.name, "value": local.value, "variablesReference": 0}),
        );
        told.collect()
    }

    /// `evaluate`.
    ///
    /// # Errors
    /// What gdb says.
    pub fn evaluate(&mut self, arguments: &Value) -> Result<Value> {
        let text = arguments["expression"]
            .as_str()
            .context("expression is a text")?;
        if arguments["context"] == "repl" {
            if let Some(answer) = self.command(text.trim())? {
                return Ok(json!({"result": answer, "variablesReference": 0}));
            }
        }
        let frame = match arguments.get("frameId") {
            None | Some(Value::Null) => self.frames.newest(),
            Some(id) => self.frames.frame(id)?,
        };
        // Of Python's functions only the variables are known; all else is an expression of the frame that runs them.
        let locals = self.python_locals(frame);
        if let Some(local) = locals.into_iter().find(|l| l["name"] == text.trim()) {
            return Ok(json!({"result": local["value"], "variablesReference": 0}));
        }
        let mut told = self.value_of(frame, text)?;
        told["result"] = told["value"].take();
        if let Value::Object(told) = &mut told {
            told.remove("value");
        }
        Ok(told)
    }
}

/// A value, as gdb shows it.
fn shown(object: &Value) -> String {
    mi::text(object, "value").unwrap_or("").to_string()
}
