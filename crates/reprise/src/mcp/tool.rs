//! What a tool is: a name, what it is good for, its arguments as a type, and its answer.

use super::limits::Limits;
use super::sessions::Sessions;
use anyhow::{anyhow, Result};
use rmcp::model::{JsonObject, ToolAnnotations};
use rmcp::schemars::{generate::SchemaSettings, JsonSchema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A tool, which is the type of its arguments.
pub trait Question: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its name.
    const NAME: &'static str;
    /// What it is good for, for whoever chooses between tools.
    const ABOUT: &'static str;
    /// It runs programs and makes traces.
    const RUNS: bool = false;

    /// Its answer.
    fn answer(
        self,
        sessions: Arc<Sessions>,
        limits: Limits,
    ) -> impl Future<Output = Result<Value>> + Send;
}

/// An answer that is being found.
pub type Answer = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

/// One of the table.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    about: &'static str,
    runs: bool,
    schema: fn() -> JsonObject,
    call: fn(Map<String, Value>, Arc<Sessions>, Limits) -> Answer,
}

impl Tool {
    /// The tool that this type is.
    pub const fn of<Q: Question>() -> Tool {
        Tool {
            name: Q::NAME,
            about: Q::ABOUT,
            runs: Q::RUNS,
            schema: schema_of::<Q>,
            call: call::<Q>,
        }
    }

    /// As a client is told of it.
    pub fn description(&self) -> rmcp::model::Tool {
        let annotations = ToolAnnotations::new()
            .read_only(!self.runs)
            .destructive(false)
            .open_world(self.runs);
        rmcp::model::Tool::new(self.name, self.about, Arc::new((self.schema)()))
            .annotate(annotations)
    }

    /// Calls it with these arguments, of which the limits have been taken.
    pub fn call(&self, arguments: Map<String, Value>, to: Arc<Sessions>, limits: Limits) -> Answer {
        (self.call)(arguments, to, limits)
    }
}

fn schema_of<Q: Question>() -> JsonObject {
    // Models do better without references.
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<Q>();
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    for name in ["$schema", "title", "description"] {
        schema.remove(name);
    }
    Limits::describe(&mut schema);
    schema
}

/// What is wrong with these arguments. It is the argument without which something else is, or nothing.
fn wrong<Q: Question>(arguments: &Map<String, Value>, why: &str) -> anyhow::Error {
    let is_it = |name: &&String| {
        let mut others = arguments.clone();
        others.remove(*name);
        let read = serde_json::from_value::<Q>(others.into());
        read.err().is_none_or(|e| e.to_string() != why)
    };
    let name = arguments.keys().find(is_it);
    let name = name.map_or(String::new(), |name| format!("{name}: "));
    anyhow!("the arguments of {} are wrong: {name}{why}", Q::NAME)
}

fn call<Q: Question>(arguments: Map<String, Value>, to: Arc<Sessions>, limits: Limits) -> Answer {
    let read = serde_json::from_value::<Q>(arguments.clone().into());
    let read = read.map_err(|e| wrong::<Q>(&arguments, &e.to_string()));
    Box::pin(async move {
        let question = read?;
        question.answer(to, limits).await
    })
}
