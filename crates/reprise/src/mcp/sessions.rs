//! Which replays are kept warm: one for each process of a trace that was asked about lately.

use super::limits::Limits;
use super::warm::Warm;
use crate::debug;
use crate::processes::ProcessName;
use anyhow::{Context, Result};
use reprise_debug::Place;
use reprise_trace::{Catalog, EVENTS_FILE};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

/// Most that are kept.
const MOST: usize = 4;
/// One that nobody asked for so long is ended.
const IDLE: Duration = Duration::from_secs(600);
/// Between two looks for such.
const LOOK: Duration = Duration::from_secs(30);

/// Which recording: another one may come to lie at the same place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Trace {
    dir: PathBuf,
    events: (u64, u64, u64, i64),
}

/// Which process of which recording.
type Key = (Trace, u32);

/// A recording, a process's name in it, and whether it is asked where it crashed.
type Meant = (Trace, Option<String>, bool);

/// Room for a session, which is there when somebody has asked.
type Room = Arc<Mutex<Option<Warm>>>;

/// All that are kept.
#[derive(Default)]
pub struct Sessions {
    rooms: Lock<HashMap<Key, (Room, Instant)>>,
    /// Which process was meant, so that not all events are read at each question.
    births: Lock<HashMap<Meant, u32>>,
}

/// A process of a recording, to be asked.
pub struct Subject {
    /// The trace.
    pub dir: PathBuf,
    /// Its process, in the order of their births.
    pub birth: u32,
    key: Key,
}

impl Sessions {
    fn rooms(&self) -> MutexGuard<'_, HashMap<Key, (Room, Instant)>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that is meant. Where none is named and it `asks_for_crash`, that is the one that crashed.
    ///
    /// # Errors
    /// When there is no such trace or process.
    pub async fn subject(
        &self,
        trace: Option<&str>,
        pid: Option<&str>,
        asks_for_crash: bool,
        limits: &Limits,
    ) -> Result<Subject> {
        let dir = dir_of(trace, limits).await?;
        let trace = Trace {
            events: identity(&dir)?,
            dir: dir.clone(),
        };
        let asked = (trace.clone(), pid.map(String::from), asks_for_crash);
        let known = {
            let births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
            births.get(&asked).copied()
        };
        let birth = match known {
            Some(birth) => birth,
            None => {
                let name = pid.map(str::parse::<ProcessName>).transpose();
                let name = name.map_err(anyhow::Error::msg)?;
                let place = match asks_for_crash {
                    true => Place::Crash,
                    false => Place::End,
                };
                let of = dir.clone();
                let find = tokio::task::spawn_blocking(move || debug::birth(name, place, &of));
                let found = tokio::time::timeout_at(limits.end, find).await;
                found
                    .map_err(|_| limits.are_over())?
                    .context("read the trace")??
            }
        };
        let mut births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
        if births.len() > 64 * MOST {
            births.clear();
        }
        births.insert(asked, birth);
        Ok(Subject {
            dir,
            birth,
            key: (trace, birth),
        })
    }

    /// The room of its session; others wait until it is given back.
    ///
    /// # Errors
    /// When it is used by other calls until the limit.
    pub async fn room(
        &self,
        subject: &Subject,
        limits: &Limits,
    ) -> Result<OwnedMutexGuard<Option<Warm>>> {
        let room = {
            let mut rooms = self.rooms();
            let new = || (Room::default(), Instant::now());
            let (room, used) = rooms.entry(subject.key.clone()).or_insert_with(new);
            *used = Instant::now();
            let room = Arc::clone(room);
            while rooms.len() > MOST {
                let free = |(_, (room, _)): &(&Key, &(Room, Instant))| room.try_lock().is_ok();
                let others = rooms.iter().filter(|(key, _)| **key != subject.key);
                let oldest = others.filter(free).min_by_key(|(_, (_, used))| *used);
                let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                    break;
                };
                rooms.remove(&key);
            }
            room
        };
        let mine = tokio::time::timeout_at(limits.end, room.lock_owned()).await;
        mine.map_err(|_| {
            anyhow::anyhow!(
                "other calls asked this recording for all of the {} s",
                limits.seconds
            )
        })
    }

    /// Ends those that nobody has asked for long, again and again.
    pub async fn end_idle(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.rooms()
                .retain(|_, (room, used)| used.elapsed() < IDLE || room.try_lock().is_err());
        }
    }

    /// Ends all.
    pub async fn end_all(&self) {
        let all: Vec<Room> = self.rooms().drain().map(|(_, (room, _))| room).collect();
        for room in all {
            if let Some(warm) = room.lock().await.take() {
                warm.end().await;
            }
        }
    }
}

/// The directory of a trace.
///
/// # Errors
/// When there is none.
pub async fn dir_of(trace: Option<&str>, limits: &Limits) -> Result<PathBuf> {
    let trace = trace.map(PathBuf::from);
    let resolve = move || -> Result<PathBuf> {
        let dir = Catalog::from_env()?.resolve(trace.as_deref())?;
        Ok(dir.canonicalize()?)
    };
    // A packed one is unpacked.
    let found = tokio::time::timeout_at(limits.end, tokio::task::spawn_blocking(resolve)).await;
    found
        .map_err(|_| limits.are_over())?
        .context("find the trace")?
}

fn identity(dir: &Path) -> Result<(u64, u64, u64, i64)> {
    let events = dir.join(EVENTS_FILE).metadata();
    let m = events.with_context(|| format!("{} has no events", dir.display()))?;
    Ok((m.dev(), m.ino(), m.len(), m.mtime_nsec()))
}
