//! The trace's end: the last events, the summary of all that is known by then, and what becomes of a program that goes on.

use super::{damaged, Ending, Work};
use crate::{attend, end, found_dead, left_behind, missing};
use crate::{counters, processes, streams, Agent};
use reprise_abi::event::{EndReason, Event};
use reprise_console::say;
use reprise_trace::{Summary, TraceError};
use std::sync::atomic::Ordering::*;

impl Work {
    /// Closes the trace. A program that goes on is attended to until it is gone.
    pub(super) fn finish(mut self, (status, reason): Ending) -> Result<(), TraceError> {
        let damaged = self.tell_why_it_ends_early();
        let stopped = reason == EndReason::Stopped;
        let reason = match self.full {
            Some(_) => EndReason::Stopped,
            None => reason,
        };
        if self.full.is_none() && !damaged && !stopped {
            self.write_last_events(reason, status)?;
        }
        let Work {
            agent,
            begun,
            mut drain,
            merge,
            processes,
            mut outsiders,
            strays,
            mut told,
            native,
            place,
            full,
            ..
        } = self;
        let Agent {
            shared,
            writer,
            dir,
            image,
            launcher,
            mut warnings,
            uncaptured,
            ..
        } = agent;
        let stats = writer.finish()?;
        tracing::info!(
            ?status,
            ?reason,
            ended_early = full.as_deref(),
            events = stats.events,
            bytes = stats.bytes_raw,
            written = stats.bytes_compressed,
            "ends"
        );
        let session = shared.session();
        let mut summary = Summary::of_stream(&stats);
        summary.duration_ns = begun.elapsed().as_nanos() as u64;
        summary.wait_status = status.filter(|_| reason != EndReason::Unknown);
        summary.stopped = stopped;
        summary.end_reason = match reason {
            EndReason::Ended => "the program ended".into(),
            EndReason::Stopped => full.unwrap_or_else(|| match status {
                None => "it was stopped before the program ended".into(),
                Some(_) => left_behind(session),
            }),
            EndReason::Unknown => "the launcher was gone before the program ended".into(),
        };
        summary.counters = counters::read(session);
        summary.counters.extend(counters::output_bytes(session));
        summary.void_stamps = merge.void_stamps(&shared);
        told.look(session);
        let notes = reprise_abi::notes::sentences(session.notes.load(Relaxed));
        warnings.extend(notes.map(String::from));
        outsiders.look(&shared);
        warnings.append(&mut outsiders.warnings);
        summary.inputs = drain.inputs.finish();
        warnings.append(&mut drain.inputs.warnings);
        summary.warnings = warnings;
        summary.native_cpuid = native.into_names();
        for pid in processes.orphaned {
            let why = "its parent was killed while it made it";
            drain.census.miss(pid, None, why);
        }
        summary.killed = drain.census.killed().to_vec();
        summary.uncaptured = match stopped {
            // Who was being made at that moment is in the trace only in part.
            true => uncaptured,
            false => missing(drain.census, strays, uncaptured),
        };
        // Without one the trace counts as cut off, with all its events.
        match summary.write(&dir) {
            Ok(()) => {}
            // The launcher says so.
            Err(_) if place.is_gone() => {}
            Err(e) => say!("the trace has no summary: {e}"),
        }
        if stopped {
            // What it has to say is of a program that nobody records, and nobody may wait for it.
            streams::leave(&[2]);
            attend(shared, &image, launcher);
        }
        Ok(())
    }

    /// Warns of an end that is not the program's; whether its memory was damaged.
    fn tell_why_it_ends_early(&mut self) -> bool {
        // What was taken last may make no sense, either.
        let damage = self.drain.damage().or(self.merge.damage());
        let damage = damage.map(damaged);
        if let Some(why) = self.full.as_ref().or(damage.as_ref()) {
            let warnings = &mut self.agent.warnings;
            warnings.push(format!("the recording ends early: {why}"));
        }
        damage.is_some()
    }

    /// Of whom nobody said that they ended, and the program's end.
    fn write_last_events(
        &mut self,
        reason: EndReason,
        status: Option<i32>,
    ) -> Result<(), TraceError> {
        for (who, status) in processes::lost(&self.agent.shared) {
            let bytes = found_dead(who, status);
            self.agent.writer.push(&bytes)?;
            if let Ok(event) = Event::parse(&bytes) {
                self.drain.census.follow(&event);
            }
        }
        if reason == EndReason::Ended {
            self.agent.writer.push(&end(reason, status))?;
        }
        Ok(())
    }
}
